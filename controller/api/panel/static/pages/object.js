// Any object: its state, events and YAML; edited as YAML with the plan first.
import { html, useMemo, useState, visibleText, when } from '../lib.js';
import { call, ended, pathOf, useCan, useObject } from '../api.js';
import { Button, Card, Conditions, Confirm, ErrorNote, Facts, Tabs, toast } from '../ui.js';
import { PlanDialog, rebased } from '../plan.js';
import { toYaml, written } from '../yaml.js';
import { namespace as chosen } from './list.js';
import { Events } from './sandbox.js';

const SKELETONS = {
  SandboxTemplate: { image: 'paddock/python:1', securityLevel: 'full-isolation', resources: { limits: { cpu: '500m', memory: '256Mi', pids: 64 } } },
  SandboxPool: { templateRef: { name: 'python' }, warmReplicas: 1, maxReplicas: 4 },
  Quota: { hard: { cpu: '4', memory: '8Gi', pids: 1024, sandboxes: 10 } },
  HostQuota: { hard: { cpu: '4', memory: '8Gi' } },
  SecurityProfile: { base: 'development' },
};

export default function ObjectPage({ kind, namespace, name, tab, create }) {
  if (create) return html`<${NewObject} kind=${kind}/>`;
  return html`<${Existing} kind=${kind} namespace=${namespace} name=${name} tab=${tab}/>`;
}

function NewObject({ kind }) {
  const can = useCan('create', kind.kind, kind.namespaced ? chosen.get() || 'default' : null);
  const first = useMemo(() => toYaml({ apiVersion: 'paddock/v1alpha1', kind: kind.kind, metadata: { name: kind.kind === 'HostQuota' ? 'host' : 'new', ...(kind.namespaced ? { namespace: chosen.get() || 'default' } : {}) }, spec: SKELETONS[kind.kind] ?? {} }), [kind]);
  return html`<div class="crumb"><a href="#/${kind.name}">${kind.kind}</a></div><div class="head"><h1 tabindex="-1">New ${kind.kind}</h1></div>
    <${Editor} kind=${kind} base=${null} text=${first} allowed=${can} onDone=${(made) => { location.hash = `#/${kind.name}${kind.namespaced ? `/${encodeURIComponent(made.metadata.namespace)}` : ''}/${encodeURIComponent(made.metadata.name)}`; }}/>`;
}

function Existing({ kind, namespace, name, tab }) {
  const { object, error, gone } = useObject(kind, namespace, name);
  const [asking, setAsking] = useState(false);
  const canDelete = useCan('delete', kind.kind, namespace, name);
  const base = `#/${kind.name}/${kind.namespaced ? `${encodeURIComponent(namespace)}/` : ''}${encodeURIComponent(name)}`;
  const deletable = kind.verbs.includes('delete') && !(object?.status?.conditions ?? []).some((each) => each.reason === 'BuiltIn');
  const { status = {}, spec = {} } = object ?? {};
  return html`<div class="crumb"><a href="#/${kind.name}">${kind.kind}</a>${kind.namespaced ? ` / ${visibleText(namespace)}` : ''}</div>
    <div class="head"><h1 tabindex="-1">${visibleText(name)}</h1>${object && deletable && !gone ? html`<${Button} icon="trash" tone="danger" allowed=${canDelete} onClick=${() => setAsking(true)}>Delete</${Button}>` : ''}</div>
    <${Tabs} tabs=${[['', 'Overview'], ...(kind.namespaced ? [['events', 'Events']] : []), ['yaml', 'YAML']]} current=${tab} base=${base}/><${ErrorNote} error=${error}/>
    ${gone ? html`<div class="empty">It is gone.</div>` : !object ? html`<p class="quiet">Loading…</p>`
    : tab === 'yaml' ? html`<${YamlTab} kind=${kind} object=${object}/>`
    : tab === 'events' ? html`<${Events} namespace=${namespace} name=${name} kind=${kind.kind} version=${object.metadata.resourceVersion}/>`
    : html`<div class="grid">${status.conditions ? html`<${Card} title="Conditions"><${Conditions} conditions=${status.conditions}/></${Card}>` : ''}
      <${Card} title=${kind.kind}><${Facts} facts=${[...flat(kind.kind === 'Event' ? { ...object, metadata: undefined, apiVersion: undefined, kind: undefined } : spec), object.metadata.creationTimestamp && ['Created', when(object.metadata.creationTimestamp)]]}/></${Card}>
      ${Object.keys(status).some((each) => each !== 'conditions') ? html`<${Card} title="Status"><${Facts} facts=${flat({ ...status, conditions: undefined, observedGeneration: undefined })}/></${Card}>` : ''}</div>`}
    ${asking ? html`<${Confirm} title=${`Delete ${name}`} action="Delete" confirm=${name} onClose=${() => setAsking(false)} onDo=${async () => { await call(pathOf(kind, namespace, name), { method: 'DELETE' }); toast(`${name}: deletion requested`); location.hash = `#/${kind.name}`; }}><p>Delete ${kind.kind} <b>${visibleText(name)}</b>?</p></${Confirm}>` : ''}`;
}

/** The fields of an object by their dotted names. */
export function flat(value, head = '') {
  return Object.entries(value ?? {}).flatMap(([name, each]) => {
    if (each === undefined) return [];
    const field = head ? `${head}.${name}` : name;
    if (each && typeof each === 'object' && !Array.isArray(each) && Object.keys(each).length) return flat(each, field);
    if (Array.isArray(each)) return [[field, each.length ? each.map((one) => (typeof one === 'object' ? JSON.stringify(one) : one)).join(', ') : 'none']];
    return [[field, each === '' ? '–' : typeof each === 'object' ? 'none' : String(each)]];
  });
}

export function YamlTab({ kind, object }) {
  const can = useCan('update', kind.kind, object.metadata.namespace ?? null, object.metadata.name);
  const [editing, setEditing] = useState(null);
  const writable = kind.verbs.includes('update') && !(object.status?.conditions ?? []).some((each) => each.reason === 'BuiltIn');
  if (editing) return html`<${Editor} key=${editing.metadata.resourceVersion} kind=${kind} base=${editing} text=${toYaml(written(editing))} allowed=${can} onDone=${() => setEditing(null)} onCancel=${() => setEditing(null)}/>`;
  return html`${writable ? html`<div class="row gap-below"><${Button} icon="edit" allowed=${can} onClick=${() => setEditing(object)}>Edit</${Button}></div>` : ''}<pre class="block tall" tabindex="0">${visibleLines(toYaml(object))}</pre>`;
}
const visibleLines = (text) => text.split('\n').map(visibleText).join('\n');

/** A text editor for one document. */
export function Editor({ kind, base: first, text: start, allowed, onDone, onCancel }) {
  const [base, setBase] = useState(first);
  const [text, setText] = useState(start);
  const [planning, setPlanning] = useState(false);
  const [error, setError] = useState(null);
  const withVersion = () => (base ? text.replace(/^metadata:\n/m, `metadata:\n  resourceVersion: ${JSON.stringify(base.metadata.resourceVersion)}\n`) : text);
  const rebase = async (newer) => {
    try { // the daemon reads the text, by its rules
      const found = await call('diff', { method: 'POST', body: { documents: [{ file: 'panel', text }], namespace: base.metadata.namespace ?? null, replace: true } });
      setText(toYaml(written(rebased(base, found.items[0].after, newer))));
      setBase(newer);
      setPlanning(false);
    } catch (failed) { if (!ended(failed)) setError(failed); setPlanning(false); }
  };
  return html`<div class="form"><textarea class="code" spellcheck="false" aria-label="YAML" value=${text} onInput=${(event) => setText(event.target.value)}></textarea><${ErrorNote} error=${error}/>
    <div class="row"><${Button} tone="primary" icon="list" allowed=${allowed} onClick=${() => setPlanning(true)}>Review changes</${Button}>${onCancel ? html`<${Button} onClick=${onCancel}>Cancel</${Button}>` : ''}</div></div>
    ${planning ? html`<${PlanDialog} kind=${kind} text=${withVersion()} base=${base} onClose=${() => setPlanning(false)} onDone=${(made) => { setPlanning(false); onDone(made); }} onRebase=${rebase}/>` : ''}`;
}
