// Projects: each is a sandbox of that name, opened from a template, and closed without losing its volumes.
import { html, useState, useValue, visibleText } from '../lib.js';
import { call, ended, sandboxPath, useCan, usePolled } from '../api.js';
import { Age, Button, DataTable, ErrorNote, fail, Icon, Status, toast } from '../ui.js';
import { statusWord } from '../words.js';
import { linkTo, namespace, NamespaceSelect } from './list.js';

const LABEL = 'paddock/project';
const KIND = { name: 'sandboxes', namespaced: true };
const WAIT_SECONDS = 60;

const openIt = (space, name, template) => call(sandboxPath(space, name, 'open'), { method: 'POST', body: { ...(template ? { templateRef: { name: template } } : {}), waitSeconds: WAIT_SECONDS } });

export default function Projects() {
  const space = useValue(namespace);
  const place = space || 'default';
  const path = space ? `namespaces/${encodeURIComponent(space)}/sandboxes` : 'sandboxes';
  const [turn, setTurn] = useState(0);
  const { value, error } = usePolled((signal) => call(path, { signal, query: { labelSelector: LABEL } }), 4000, [path, turn], true);
  const again = () => setTurn((old) => old + 1);
  const columns = [
    { key: 'name', title: 'Project', value: (row) => row.metadata.name, cell: (row) => html`<a class="strong" href=${linkTo(KIND, row.metadata)}>${visibleText(row.metadata.name)}</a>` },
    ...(space ? [] : [{ key: 'namespace', title: 'Namespace', hide: 'narrow-hide', value: (row) => row.metadata.namespace, cell: (row) => visibleText(row.metadata.namespace) }]),
    { key: 'status', title: 'Status', value: statusWord, cell: (row) => html`<${Status} word=${statusWord(row)}/>` },
    { key: 'template', title: 'Template', hide: 'narrow-hide', value: (row) => row.spec.templateRef?.name, cell: (row) => visibleText(row.spec.templateRef?.name ?? 'its own') },
    { key: 'memory', title: 'Memory', hide: 'narrow-hide', cell: (row) => visibleText(row.status?.resources?.limits?.memory ?? row.spec.resources?.limits?.memory ?? '–') },
    { key: 'act', title: 'Open', cell: (row) => html`<${Act} project=${row} again=${again}/>` },
    { key: 'age', title: 'Age', num: true, hide: 'narrow-hide', value: (row) => -Date.parse(row.metadata.creationTimestamp), cell: (row) => html`<${Age} time=${row.metadata.creationTimestamp}/>` },
  ];
  return html`<div class="head"><div class="title"><h1 tabindex="-1">Projects</h1><span class="badge">${value ? value.items.length : '…'}</span></div></div>
    <div class="tools"><${NamespaceSelect}/><span class="quiet">A project is a sandbox that is created from a template when it is first opened, and started again when it is opened later.</span></div>
    <${OpenForm} key=${place} space=${place} again=${again}/><${ErrorNote} error=${error}/>
    ${!value ? (error ? '' : html`<p class="quiet">Loading…</p>`) : html`<${DataTable} label="Projects" columns=${columns} rows=${value.items} rowKey=${(row) => row.metadata.uid} href=${(row) => linkTo(KIND, row.metadata)} empty=${html`<${Icon} name="folder" size=${36}/><b>No projects</b><span>Open one above, or run <code>paddock project open NAME --template TEMPLATE</code>.</span>`}/>`}`;
}

function OpenForm({ space, again }) {
  const can = useCan('create', 'Sandbox', space);
  const { value } = usePolled((signal) => call(`namespaces/${encodeURIComponent(space)}/sandboxtemplates`, { signal }).catch(() => null), 0, [space]);
  const [name, setName] = useState('');
  const [template, setTemplate] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const names = (value?.items ?? []).map((each) => each.metadata.name);
  const chosen = template || names[0] || '';
  const go = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try { await openIt(space, name.trim(), chosen); toast(`${name}: open`); setName(''); again(); } catch (failed) { if (!ended(failed)) setError(failed); }
    setBusy(false);
  };
  return html`<form class="row gap-below" onSubmit=${go}><label class="row">Project <input required value=${name} onInput=${(event) => setName(event.target.value)}/></label>
      <label class="row">Template <select value=${chosen} onChange=${(event) => setTemplate(event.target.value)}>${names.length ? names.map((each) => html`<option key=${each} value=${each}>${each}</option>`) : html`<option value="">none in ${space}</option>`}</select></label>
      <button type="submit" class="primary" disabled=${busy || !can.allowed || !name.trim()} title=${can.reason}><${Icon} name="open"/>${busy ? 'Opening…' : `Open in ${space}`}</button></form><${ErrorNote} error=${error}/>`;
}

function Act({ project, again }) {
  const { namespace: space, name } = project.metadata;
  const can = useCan('update', 'Sandbox', space, name);
  const [busy, setBusy] = useState(false);
  const closed = project.spec.runState === 'Suspended';
  const go = async () => {
    setBusy(true);
    try {
      await (closed ? openIt(space, name) : call(sandboxPath(space, name, 'close'), { method: 'POST' }));
      toast(`${name}: ${closed ? 'open' : 'closed'}`);
      again();
    } catch (failed) { fail(failed); }
    setBusy(false);
  };
  return html`<${Button} allowed=${can} disabled=${busy} aria-label="${closed ? 'Open' : 'Close'} ${visibleText(name)}" onClick=${go}>${closed ? 'Open' : 'Close'}</${Button}>`;
}
