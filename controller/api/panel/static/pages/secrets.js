// Secrets of this host: their names, what uses them, and a form that sets one. No value ever comes back.
import { html, useState, visibleText } from '../lib.js';
import { call, usePolled } from '../api.js';
import { Age, Button, Confirm, DataTable, ErrorNote, Field, Icon, Status, toast } from '../ui.js';
import { linkTo, namespace as chosen, SearchBox } from './list.js';

const PLURALS = { Sandbox: 'sandboxes', SandboxTemplate: 'sandboxtemplates', Provider: 'providers', MCPServer: 'mcpservers', ModelServer: 'modelservers', Workflow: 'workflows', WorkflowRun: 'workflowruns', Plugin: 'plugins' };
const USES = { providers: 'keys of providers', sandboxes: 'files and variables of sandboxes' };

function UsedBy({ secret }) {
  if (!secret.usedBy.length) return html`<span class="quiet">nothing</span>`;
  const shown = secret.usedBy.slice(0, 3);
  return html`${shown.map((user, index) => html`${index ? ', ' : ''}${PLURALS[user.kind] ? html`<a href=${linkTo({ name: PLURALS[user.kind], namespaced: true }, { namespace: secret.namespace, name: user.name })}>${visibleText(`${user.kind} ${user.name}`)}</a>` : visibleText(`${user.kind} ${user.name}`)}`)}${secret.usedBy.length > shown.length ? html` <span class="quiet">and ${secret.usedBy.length - shown.length} more</span>` : ''}`;
}

export default function Secrets() {
  const [run, setRun] = useState(0);
  const { value, error } = usePolled((signal) => call('secrets', { signal }), 15_000, [run], true);
  const [text, setText] = useState('');
  const [setting, setSetting] = useState(null);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const items = (value?.items ?? []).filter((each) => words.every((word) => `${each.namespace} ${each.name} ${each.for} ${each.usedBy.map((user) => user.name).join(' ')}`.toLowerCase().includes(word)));
  const keyOf = (each) => `${each.namespace}/${each.for}/${each.name}`;
  return html`<div class="head"><div class="title"><h1 tabindex="-1">Secrets</h1><span class="badge" aria-live="polite">${value ? value.items.length : '…'}</span></div><${Button} icon="plus" tone="primary" onClick=${() => setSetting({ namespace: chosen.get() || 'default', name: '', for: 'sandboxes', hosts: [] })}>New secret</${Button}></div>
    <div class="tools"><${SearchBox} label="Search" value=${text} onInput=${setText}/><span class="quiet grow">Files of this host. Values are set here, and never shown.</span></div><${ErrorNote} error=${error}/>
    ${!value ? (error ? '' : html`<p class="quiet">Loading…</p>`) : html`<${DataTable} label="Secrets" rows=${items} rowKey=${keyOf} wraps=${true} empty=${html`<${Icon} name="key" size=${36}/><b>No secrets</b><span>A sandbox gets one as a file or a variable, a provider as its key, an egress proxy as a credential for a host.</span>`} columns=${[
      { key: 'name', title: 'Name', value: (row) => row.name, cell: (row) => html`<b>${visibleText(row.name)}</b>` },
      { key: 'namespace', title: 'Namespace', value: (row) => row.namespace, cell: (row) => visibleText(row.namespace) },
      { key: 'for', title: 'For', value: (row) => row.for, cell: (row) => html`<span title=${USES[row.for] ?? `credentials for ${visibleText(row.for)}, added by the egress proxy`}>${visibleText(row.for)}</span>${row.hosts.length ? html` <span class="quiet">to ${visibleText(row.hosts.join(', '))}</span>` : ''}` },
      { key: 'used', title: 'Used by', value: (row) => row.usedBy.length, cell: (row) => html`<${UsedBy} secret=${row}/>` },
      { key: 'changed', title: 'Changed', num: true, value: (row) => -Date.parse(row.changedTime ?? 0), cell: (row) => (row.changedTime ? html`<${Age} time=${row.changedTime}/>` : html`<${Status} word="not set" tone="bad"/>`) },
      { key: 'set', title: html`<span class="visually-hidden">Actions</span>`, num: true, cell: (row) => html`<${Button} aria-label="Set ${visibleText(row.name)}" onClick=${() => setSetting({ ...row, present: true })}>Set</${Button}>` },
    ]}/>`}
    ${setting ? html`<${SetDialog} first=${setting} onClose=${() => setSetting(null)} onDone=${() => setRun(run + 1)}/>` : ''}`;
}

function SetDialog({ first, onClose, onDone }) {
  const [secret, setSecret] = useState(first);
  const [value, setValue] = useState('');
  const kind = USES[secret.for] ? secret.for : 'host';
  const put = (name, next) => setSecret({ ...secret, [name]: next });
  const input = (name, label, more = {}) => html`<${Field} label=${label} help=${more.help}>${(props) => html`<input ...${props} ...${more} help=${undefined} required spellcheck="false" autocomplete="off" disabled=${first.present} value=${secret[name]} onInput=${(event) => put(name, event.target.value)}/>`}</${Field}>`;
  const save = async () => {
    const { result } = await call(`namespaces/${encodeURIComponent(secret.namespace)}/secrets/${encodeURIComponent(secret.name)}`, { method: 'PUT', body: { value, for: secret.for, hosts: kind === 'providers' ? secret.hosts : [] } });
    toast(`secret ${secret.name}: ${result}`);
    onDone();
  };
  return html`<${Confirm} title=${first.present ? `Set ${visibleText(first.name)}` : 'New secret'} action="Set" tone="primary" disabled=${!value || !secret.name || !secret.for} onClose=${onClose} onDo=${save}>
    <div class="form">${input('name', 'Name', { placeholder: 'npm-token' })}${input('namespace', 'Namespace')}
    <${Field} label="For">${(props) => html`<select ...${props} disabled=${first.present} value=${kind} onChange=${(event) => put('for', event.target.value === 'host' ? '' : event.target.value)}>${Object.entries(USES).map(([name, about]) => html`<option key=${name} value=${name}>${name}: ${about}</option>`)}<option value="host">a host: its credential, which no sandbox can read</option></select>`}</${Field}>
    ${kind === 'host' ? input('for', 'Host', { placeholder: 'api.github.com' }) : ''}
    ${kind === 'providers' ? html`<${Field} label="Hosts" help="The key is sent to these alone. Empty: to those it has.">${(props) => html`<input ...${props} placeholder="api.anthropic.com" value=${secret.hosts.join(', ')} onInput=${(event) => put('hosts', event.target.value.split(/[\s,]+/).filter(Boolean))}/>`}</${Field}>` : ''}
    <${Field} label="Value" help="As it is typed, with its line breaks.">${(props) => html`<textarea ...${props} class="masked" rows="3" required spellcheck="false" autocomplete="off" value=${value} onInput=${(event) => setValue(event.target.value)}/>`}</${Field}></div></${Confirm}>`;
}
