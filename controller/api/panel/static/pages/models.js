// Sources of models: providers and model servers, their budgets, and who used them today.
import { html, useValue, visibleText, when } from '../lib.js';
import { call, kinds, useCan, usePolled } from '../api.js';
import { Button, Card, DataTable, ErrorNote, Facts, Icon, Meter, Status, toneOf } from '../ui.js';
import { linkTo, namespace, NamespaceSelect } from './list.js';
import { Existing } from './object.js';

const EVERY_MS = 5000;
const WORDS = { Provider: 'provider', ModelServer: 'model server' };
const figure = new Intl.NumberFormat('en');

/** Without a name: all sources of the chosen namespace. */
export default function Models(props) {
  if (!props.name) return html`<${Overview}/>`;
  return html`<${Existing} ...${props} state=${(object) => readyOf(object.status?.conditions?.find((each) => each.type === 'Ready'))} cards=${Cards}/>`;
}

function readyOf(ready) {
  if (!ready?.reason) return ['Pending', 'wait'];
  const tone = { True: ready.reason === 'Idle' ? 'idle' : 'ok', False: toneOf(ready.reason) === 'wait' ? 'wait' : 'bad' }[ready.status] ?? 'unknown';
  return [ready.reason, tone];
}

function useUse(space) {
  const path = space ? `namespaces/${encodeURIComponent(space)}/providers/-/usage` : 'providers/-/usage';
  return usePolled((signal) => call(path, { signal }), EVERY_MS, [path], true);
}

/** So many of at most so many; the number alone where nothing bounds it. */
function Used({ used, most, label }) {
  if (!most) return html`<span class="num">${figure.format(used)}</span>`;
  return html`<${Meter} label=${label} used=${used} most=${most} text="${figure.format(used)} / ${figure.format(most)}"/>`;
}

function Overview() {
  const space = useValue(namespace);
  const known = useValue(kinds);
  const { value, error } = useUse(space);
  const kindOf = (item) => known.find((each) => each.kind === item.source.kind);
  const total = (item) => item.users.reduce((sum, each) => sum + each.requests, 0);
  const columns = [
    { key: 'name', title: 'Name', value: (row) => row.source.name, cell: (row) => html`<a class="strong" href=${linkTo(kindOf(row), row.metadata)}>${visibleText(row.source.name)}</a>` },
    ...(space ? [] : [{ key: 'namespace', title: 'Namespace', hide: 'narrow-hide', value: (row) => row.metadata.namespace, cell: (row) => visibleText(row.metadata.namespace) }]),
    { key: 'status', title: 'Status', value: (row) => row.ready.reason, cell: (row) => { const [word, tone] = readyOf(row.ready); return html`<${Status} word=${word} tone=${tone} title=${visibleText(row.ready.message)}/>`; } },
    { key: 'kind', title: 'Kind', value: (row) => row.source.kind, cell: (row) => WORDS[row.source.kind] },
    { key: 'models', title: 'Models', hide: 'narrow-hide', value: (row) => row.models.join(), cell: (row) => html`<span title=${visibleText(row.models.join(', '))}>${visibleText(row.models.join(', '))}</span>` },
    { key: 'minute', title: 'Requests, last minute', value: (row) => row.requestsLastMinute, cell: (row) => html`<${Used} label="Requests of ${row.source.name} in the last minute" used=${row.requestsLastMinute} most=${row.requestsPerMinute}/>` },
    { key: 'requests', title: 'Requests today', num: true, hide: 'narrow-hide', value: total, cell: (row) => figure.format(total(row)) },
    { key: 'tokens', title: 'Tokens today', value: (row) => row.tokensToday, cell: (row) => html`<${Used} label="Tokens of ${row.source.name} today" used=${row.tokensToday} most=${row.tokensPerDay}/>` },
    { key: 'sandboxes', title: 'Sandboxes', num: true, value: (row) => row.users.filter((each) => each.namesIt).length, cell: (row) => row.users.filter((each) => each.namesIt).length },
  ];
  return html`<div class="head"><div class="title"><h1 tabindex="-1">Models</h1><span class="badge">${value ? value.items.length : '…'}</span></div>
    <div class="row">${['Provider', 'ModelServer'].map((each) => html`<${New} key=${each} kind=${known.find((one) => one.kind === each)} space=${space}/>`)}</div></div>
    <div class="tools"><${NamespaceSelect}/><span class="quiet">A sandbox that names a source reaches it at its own 127.0.0.1:8090, without its key and without a network.</span></div><${ErrorNote} error=${error}/>
    ${!value ? (error ? '' : html`<p class="quiet">Loading…</p>`) : html`<${DataTable} label="Models" columns=${columns} rows=${value.items} rowKey=${(row) => row.metadata.uid} href=${(row) => linkTo(kindOf(row), row.metadata)}
      empty=${html`<${Icon} name="plug" size=${36}/><b>No models</b><span>A provider is a model API outside, a model server a model in a sandbox of this host.</span>`}/>`}`;
}

function New({ kind, space }) {
  const can = useCan('create', kind?.kind, space || null);
  if (!kind) return null;
  return can.allowed ? html`<a class="button primary" href="#/${kind.name}/new"><${Icon} name="plus"/>New ${WORDS[kind.kind]}</a>` : html`<${Button} icon="plus" allowed=${can}>New ${WORDS[kind.kind]}</${Button}>`;
}

function Cards({ object }) {
  const { namespace: space, uid } = object.metadata;
  const { value, error } = useUse(space);
  const use = value?.items.find((each) => each.metadata.uid === uid);
  return html`<${Card} title="Budget"><${ErrorNote} error=${error}/>${use ? html`<${Budget} use=${use}/>` : error ? '' : html`<p class="quiet">Loading…</p>`}</${Card}>
    <${Card} wide=${true} title="Used by">${use ? html`<${Users} use=${use} space=${space}/>` : html`<p class="quiet">Loading…</p>`}</${Card}>`;
}

function Budget({ use }) {
  const left = use.tokensPerDay ? Math.max(0, use.tokensPerDay - use.tokensToday) : null;
  return html`<table class="plain"><thead><tr><th></th><th>Used, of all users together</th></tr></thead><tbody>
      <tr><td class="quiet">Requests, last minute</td><td><${Used} label="Requests in the last minute" used=${use.requestsLastMinute} most=${use.requestsPerMinute}/></td></tr>
      <tr><td class="quiet">Tokens today</td><td><${Used} label="Tokens today" used=${use.tokensToday} most=${use.tokensPerDay}/></td></tr></tbody></table>
    <${Facts} facts=${[left !== null && ['Tokens left', figure.format(left)], ['At a time', use.concurrent ? `at most ${figure.format(use.concurrent)} requests` : 'no limit'], ['Day ends', when(use.resetTime)]]}/>`;
}

function Users({ use, space }) {
  const [sandboxes, runs] = ['sandboxes', 'workflowruns'].map((name) => ({ name, namespaced: true }));
  if (!use.users.length) return html`<p class="quiet">No sandbox names it, and nobody used it today.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Users"><table class="data"><thead><tr><th>User</th><th>Reachable</th><th class="num">Requests</th><th class="num">Failed</th><th class="num">Tokens in</th><th class="num">Tokens out</th></tr></thead><tbody>${use.users.map((each) => html`<tr key="${each.kind}/${each.name}">
      <td>${each.kind === 'Token' ? html`token ${visibleText(each.name)}` : html`${each.kind === 'WorkflowRun' && 'workflow run '}<a class="strong" href=${linkTo(each.kind === 'WorkflowRun' ? runs : sandboxes, { namespace: space, name: each.name })}>${visibleText(each.name)}</a>`}</td>
      <td>${each.kind !== 'Sandbox' ? html`<span class="quiet">on the host</span>` : !each.namesIt ? html`<span class="quiet">not any more</span>` : html`<${Status} word=${each.reachable || 'Pending'} tone=${each.reachable === 'Listening' ? 'ok' : each.reachable ? 'bad' : 'wait'}/>`}</td>
      <td class="num">${figure.format(each.requests)}</td><td class="num">${figure.format(each.failed)}</td><td class="num">${figure.format(each.tokensIn)}</td><td class="num">${figure.format(each.tokensOut)}</td></tr>`)}</tbody></table></div>
    <p class="quiet gap">Since ${when(use.since)}. The counts of users are half a minute late at most.</p>`;
}
