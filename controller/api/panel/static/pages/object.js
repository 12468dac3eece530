// Any object: its state, events and YAML; edited by a form or as YAML, with the plan first.
import { html, titleOf, useMemo, useState, visibleText, when, wordsOf } from '../lib.js';
import { call, remove, useCan, useObject, usePolled } from '../api.js';
import { Button, Card, Conditions, Confirm, ErrorNote, Facts, Status, Tabs, toast } from '../ui.js';
import { deletionText } from '../words.js';
import { toYaml } from '../yaml.js';
import { DocumentForm } from './document.js';
import { least } from './fields.js';
import { namespace as chosen } from './list.js';
import { Events } from './sandbox.js';

const SKELETONS = {
  SandboxTemplate: { image: 'paddock/python:1', securityLevel: 'full-isolation', resources: { limits: { cpu: '500m', memory: '256Mi', pids: 64 } } },
  SandboxPool: { templateRef: { name: 'python' }, warmReplicas: 1, maxReplicas: 4 },
  SandboxSnapshot: { sandboxRef: { name: '' } },
  Quota: { hard: { cpu: '4', memory: '8Gi', pids: 1024, sandboxes: 10 } },
  HostQuota: { hard: { cpu: '4', memory: '8Gi' } },
  SecurityProfile: { base: 'development' },
  Provider: { type: 'OpenAI', url: '', secretRef: { name: 'openai-key' }, models: ['*'], limits: { requestsPerMinute: 60, tokensPerDay: 1000000 } },
  ModelServer: { template: { image: 'paddock/model-tiny:1' }, port: 8080, healthPath: '/health', resources: { limits: { cpu: '2', memory: '1Gi' } } },
  Workflow: { parameters: [{ name: 'ref', default: 'main' }], sandbox: { template: { image: 'paddock/python:1', workspace: {} } }, stages: [{ name: 'test', exec: { commands: ['echo "testing $REF"'], env: [{ name: 'REF', value: '$(parameters.ref)' }] } }] },
  WorkflowRun: { workflow: { sandbox: { template: { image: 'paddock/python:1' } }, stages: [{ name: 'hello', exec: { commands: ['echo hello'] } }] } },
  Plugin: { version: '1.0.0', type: 'Tool', objects: [{ kind: 'SandboxTemplate', metadata: { name: 'python' }, spec: { image: 'paddock/python:1' } }] },
  MCPServer: { package: { registry: 'npm', name: '', version: '' } },
};

export default function ObjectPage({ kind, namespace, name, tab, create }) {
  if (create) return html`<${NewObject} kind=${kind}/>`;
  return html`<${Existing} kind=${kind} namespace=${namespace} name=${name} tab=${tab}/>`;
}

const specOf = (schema) => schema?.properties?.spec ?? {};

function NewObject({ kind }) {
  const { value: schema, error } = usePolled((signal) => call(`/panel/schema/${kind.name}.json`, { signal }), 0, [kind]);
  if (error) return html`<${ErrorNote} error=${error}/>`;
  return schema ? html`<${Started} kind=${kind} schema=${specOf(schema)}/>` : html`<p class="quiet">Loading…</p>`;
}

function Started({ kind, schema }) {
  const first = useMemo(() => ({ apiVersion: 'paddock/v1alpha1', kind: kind.kind, metadata: { name: kind.kind === 'HostQuota' ? 'host' : '', ...(kind.namespaced ? { namespace: chosen.get() || 'default' } : {}) }, spec: SKELETONS[kind.kind] ?? least(schema) }), [kind]);
  return html`<div class="crumb"><a href="#/${kind.name}">${titleOf(kind.kind)}</a></div><div class="head"><h1 tabindex="-1">New ${wordsOf(kind.kind)}</h1></div>
    <${DocumentForm} kind=${kind} first=${first} create=${true}/>`;
}

/**
 * The page of an object. `actions` are buttons, and `cards` more of its overview: components of {kind, object}. `state`
 * gives the word of its state and its tone. With `own` the cards say all of spec and status that people want.
 */
export function Existing({ kind, namespace, name, tab, actions: Actions, cards: Cards, state, own }) {
  const { object, error, gone } = useObject(kind, namespace, name);
  const [asking, setAsking] = useState(false);
  const canDelete = useCan('delete', kind.kind, namespace, name);
  const base = `#/${kind.name}/${kind.namespaced ? `${encodeURIComponent(namespace)}/` : ''}${encodeURIComponent(name)}`;
  const deletable = kind.verbs.includes('delete') && !(object?.status?.conditions ?? []).some((each) => each.reason === 'BuiltIn');
  const { status = {}, spec = {} } = object ?? {};
  return html`<div class="crumb"><a href="#/${kind.name}">${titleOf(kind.kind)}</a>${kind.namespaced ? ` / ${visibleText(namespace)}` : ''}</div>
    <div class="head"><div class="title"><h1 tabindex="-1">${visibleText(name)}</h1>${object && !gone && state ? html`<${Status} word=${state(object)[0]} tone=${state(object)[1]}/>` : ''}</div>${object && !gone ? html`<div class="row">${Actions ? html`<${Actions} kind=${kind} object=${object}/>` : ''}${deletable ? html`<${Button} icon="trash" tone="danger" allowed=${canDelete} onClick=${() => setAsking(true)}>Delete</${Button}>` : ''}</div>` : ''}</div>
    <${Tabs} tabs=${[['', 'Overview'], ...(kind.namespaced ? [['events', 'Events']] : []), ['yaml', 'YAML'], ...(isWritable(kind, object) ? [['edit', 'Edit']] : [])]} current=${tab} base=${base}/><${ErrorNote} error=${error}/>
    ${gone ? html`<div class="empty">It is gone.</div>` : !object ? html`<p class="quiet">Loading…</p>`
    : tab === 'yaml' ? html`<${YamlTab} kind=${kind} object=${object}/>`
    : tab === 'edit' ? html`<${DocumentForm} kind=${kind} first=${object}/>`
    : tab === 'events' ? html`<${Events} namespace=${namespace} name=${name} kind=${kind.kind} version=${object.metadata.resourceVersion}/>`
    : html`<div class="grid">${Cards ? html`<${Cards} kind=${kind} object=${object}/>` : ''}${status.conditions ? html`<${Card} title="Conditions"><${Conditions} conditions=${status.conditions}/></${Card}>` : ''}
      ${own ? '' : html`<${Card} title=${'spec' in object ? 'Spec' : kind.kind}><${Facts} facts=${[...flat('spec' in object ? spec : { ...object, metadata: undefined, apiVersion: undefined, kind: undefined, status: undefined }), object.metadata.creationTimestamp && ['Created', when(object.metadata.creationTimestamp)], ...labelsOf(object)]}/></${Card}>`}
      ${!own && Object.keys(status).some((each) => each !== 'conditions' && each !== 'observedGeneration') ? html`<${Card} title="Status"><${Facts} facts=${flat({ ...status, conditions: undefined, observedGeneration: undefined })}/></${Card}>` : ''}
      ${kind.namespaced && kind.kind !== 'Event' ? html`<${Card} wide=${true} title="Events"><${Events} namespace=${namespace} name=${name} kind=${kind.kind} version=${object.metadata.resourceVersion} most=${8}/></${Card}>` : ''}</div>`}
    ${asking ? html`<${Confirm} title=${`Delete ${name}`} action="Delete" confirm=${name} onClose=${() => setAsking(false)} onDo=${async () => { await remove(kind, object); toast(`${name}: deletion requested`); location.hash = `#/${kind.name}`; }}><p>Delete ${wordsOf(kind.kind)} <b>${visibleText(name)}</b>? ${visibleText(deletionText(kind, object))}</p></${Confirm}>` : ''}`;
}

const labelsOf = ({ metadata }) => (metadata.labels ? [['Labels', Object.entries(metadata.labels).map(([key, value]) => `${key}=${value}`).join(', ')]] : []);
const isPlain = (each) => typeof each !== 'object' || each === null;
const TIMES = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;

/** The fields of an object by their dotted names. Lists of objects, and texts of lines, keep their form. */
export function flat(value, head = '') {
  return Object.entries(value ?? {}).flatMap(([name, each]) => {
    if (each === undefined) return [];
    const field = head ? `${head}.${name}` : name;
    if (each && typeof each === 'object' && !Array.isArray(each) && Object.keys(each).length) return flat(each, field);
    if (Array.isArray(each) && each.length && !(each.every(isPlain) && each.every((one) => !String(one).includes('\n')))) return [[field, html`<pre class="block" tabindex="0">${visibleLines(toYaml(each).trimEnd())}</pre>`]];
    if (Array.isArray(each)) return [[field, each.length ? each.join(', ') : 'none']];
    if (typeof each === 'string' && each.includes('\n')) return [[field, html`<pre class="block" tabindex="0">${visibleLines(each.trimEnd())}</pre>`]];
    if (typeof each === 'string' && TIMES.test(each)) return [[field, when(each)]];
    return [[field, each === '' ? '–' : typeof each === 'object' ? 'none' : String(each)]];
  });
}

const isWritable = (kind, object) => kind.verbs.includes('update') && !(object?.status?.conditions ?? []).some((each) => each.reason === 'BuiltIn');

export function YamlTab({ kind, object }) {
  const can = useCan('update', kind.kind, object.metadata.namespace ?? null, object.metadata.name);
  const [editing, setEditing] = useState(null);
  const done = () => setEditing(null);
  if (editing) return html`<${DocumentForm} kind=${kind} first=${editing} onlyText=${true} onDone=${done} onCancel=${done}/>`;
  return html`${isWritable(kind, object) ? html`<div class="row gap-below"><${Button} icon="edit" allowed=${can} onClick=${() => setEditing(object)}>Edit</${Button}></div>` : ''}<pre class="block tall" tabindex="0">${visibleLines(toYaml(object))}</pre>`;
}
const visibleLines = (text) => text.split('\n').map(visibleText).join('\n');
