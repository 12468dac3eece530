// One sandbox: why it is as it is, what it uses, its log, terminal and files.
import { h, html, useEffect, useState, useValue, visibleText, when } from '../lib.js';
import { call, ended, link, local, preview, sandboxPath, useCan, useObject, usePolled } from '../api.js';
import { Age, Button, Card, Conditions, Confirm, ErrorNote, fail, Facts, Icon, Status, Tabs, toast } from '../ui.js';
import { filesText, keptBySuspension, statusWord } from '../words.js';
import { PlanView } from '../plan.js';
import { written } from '../yaml.js';

const TABS = [['', 'Overview'], ['charts', 'Charts'], ['logs', 'Logs'], ['terminal', 'Terminal'], ['code', 'Code'], ['files', 'Files'], ['events', 'Events'], ['attest', 'Attestation'], ['yaml', 'YAML'], ['edit', 'Edit']];
const PARTS = {
  charts: () => import('./charts.js'), logs: () => import('./logs.js'), terminal: () => import('./terminal.js'), code: () => import('./code.js'), files: () => import('./files.js'), edit: () => import('./form.js'), yaml: () => import('./object.js').then((each) => ({ default: each.YamlTab })),
};
const MERGE = 'application/merge-patch+json';
// A request of MCP as it is since 2026-07-28: without a handshake.
const MCP = { 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': 'tools/list' };
const META = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientInfo': { name: 'paddock-panel', version: '1' }, 'io.modelcontextprotocol/clientCapabilities': {} };

export default function SandboxPage({ kind, namespace, name, tab }) {
  const { object, error, gone } = useObject(kind, namespace, name);
  const [asked, setAsked] = useState(null);
  const canUpdate = useCan('update', 'Sandbox', namespace, name);
  const canDelete = useCan('delete', 'Sandbox', namespace, name);
  const base = `#/sandboxes/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const state = object?.spec.runState;
  const setState = (next) => call(sandboxPath(namespace, name), { method: 'PATCH', type: MERGE, body: JSON.stringify({ metadata: { resourceVersion: object.metadata.resourceVersion }, spec: { runState: next } }) })
    .then(() => toast(`${name}: ${next === 'Running' ? 'starting' : next === 'Paused' ? 'pausing' : next === 'Hibernated' ? 'hibernating' : 'suspending'}`), fail);
  const deleting = object?.metadata.deletionTimestamp;
  const kept = keptBySuspension(object);
  return html`<div class="crumb"><a href="#/sandboxes">Sandboxes</a> / ${visibleText(namespace)}</div>
    <div class="head"><div class="title"><h1 tabindex="-1">${visibleText(name)}</h1>${object && !gone ? html`<${Status} word=${statusWord(object)}/>` : ''}</div>
      ${object && !gone ? html`<div class="row">
        ${state === 'Running' ? html`<${Button} icon="idle" allowed=${canUpdate} title=${visibleText(kept.text)} onClick=${() => kept.lost ? setAsked('suspend') : setState('Suspended')}>Suspend</${Button}><${Button} allowed=${canUpdate} onClick=${() => setState('Paused')}>Pause</${Button}><${Button} allowed=${canUpdate} onClick=${() => setState('Hibernated')}>Hibernate</${Button}>` : html`<${Button} icon="play" tone="primary" allowed=${canUpdate} onClick=${() => setState('Running')}>Run</${Button}>`}
        <a class="button" href="${base}/edit"><${Icon} name="edit"/>Edit</a>
        <${Button} icon="trash" tone="danger" allowed=${canDelete} disabled=${Boolean(deleting)} onClick=${() => setAsked('delete')}>Delete</${Button}></div>` : ''}</div>
    <${Tabs} tabs=${TABS} current=${tab} base=${base}/>
    <${ErrorNote} error=${error}/>
    ${gone ? html`<div class="empty"><${Icon} name="box" size=${36}/><b>There is no sandbox ${visibleText(name)} in ${visibleText(namespace)}</b><a href="#/sandboxes">All sandboxes</a></div>`
    : !object ? html`<p class="quiet">Loading…</p>`
    : tab in PARTS ? html`<${Part} key=${tab} part=${tab} kind=${kind} object=${object} namespace=${namespace} name=${name}/>`
    : tab === 'events' ? html`<${Events} namespace=${namespace} name=${name} kind="Sandbox" version=${object.metadata.resourceVersion}/>`
    : tab === 'attest' ? html`<${Attest} namespace=${namespace} name=${name}/>`
    : html`<${Overview} object=${object} namespace=${namespace} name=${name}/>`}
    ${asked === 'suspend' ? html`<${Confirm} title=${`Suspend ${name}`} action="Suspend" onClose=${() => setAsked(null)} onDo=${() => setState('Suspended')}><p>${visibleText(kept.text)}</p></${Confirm}>` : ''}
    ${asked === 'delete' ? html`<${DeleteDialog} object=${object} onClose=${() => setAsked(null)}/>` : ''}`;
}

function Part({ part, ...props }) {
  const [found, set] = useState(null);
  useEffect(() => { PARTS[part]().then((each) => set(() => each.default), () => fail(new Error('this part could not be loaded; reload the panel'))); }, [part]);
  return found ? h(found, props) : html`<p class="quiet">Loading…</p>`;
}

const VERDICTS = { AsAsked: ['ok', 'As its spec asks'], Acting: ['wait', 'Acting'], Waiting: ['wait', 'Waiting'], Refused: ['bad', 'Refused'], Unknown: ['unknown', 'Unknown'], NotSeenYet: ['wait', 'Not seen yet'] };

function Why({ namespace, name, version }) {
  const away = useValue(link) !== 'live';
  const { value: why, error } = usePolled((signal) => call(sandboxPath(namespace, name, 'why'), { signal }), 4000, [namespace, name, version], true);
  if (!why) return html`<${Card} title="Why it is so"><${ErrorNote} error=${error}/>${error ? '' : html`<p class="quiet">Loading…</p>`}</${Card}>`;
  const [tone, word] = away ? ['unknown', 'Unknown'] : VERDICTS[why.verdict] ?? ['warn', why.verdict];
  const rows = new Map();
  for (const [column, facts] of [['wanted', why.wanted], ['seen', why.seen]]) for (const each of facts) rows.set(each.name, { ...(rows.get(each.name) ?? {}), [column]: each.value });
  return html`<${Card} title="Why it is so"><div class="verdict ${tone}"><${Icon} name=${tone} size=${18}/><div><b>${word}${why.reason && why.reason !== why.verdict ? ` · ${visibleText(why.reason)}` : ''}</b><div class="wrap">${visibleText(why.message)}</div>${why.until ? html`<div class="quiet">until ${when(why.until)}</div>` : ''}</div></div>
    ${why.calls.length ? html`<ul class="calls">${why.calls.map((each) => html`<li><code>${visibleText(each.call)}</code><span class="quiet">${visibleText(each.why)}</span></li>`)}</ul>` : ''}
    <table class="plain"><thead><tr><th></th><th>Desired</th><th>Observed</th></tr></thead><tbody>${[...rows].map(([field, each]) => html`<tr key=${field}><td class="quiet">${field}</td><td class="wrap">${visibleText(each.wanted ?? '')}</td><td class="wrap">${visibleText(each.seen ?? '')}</td></tr>`)}</tbody></table>
    ${why.remembered.length ? html`<h3 class="gap">Recorded</h3><${Facts} facts=${why.remembered.map((each) => [each.name, each.value])}/>` : ''}</${Card}>`;
}

const agentOf = (status) => status.conditions?.find((each) => each.type === 'AgentCallersEnforced');
const CALLERS = { Paddock: 'the daemon alone', Anyone: 'the daemon, and programs of the sandbox' };

/** The agent in the sandbox: its settings, and the tools that it lists when asked. */
function Agent({ object, agent }) {
  const { namespace, name } = object.metadata;
  const can = useCan('use', 'Sandbox', namespace, name, 'mcp');
  const [tools, setTools] = useState(null);
  const [error, setError] = useState(null);
  const enforced = agentOf(object.status ?? {});
  const list = async () => {
    setError(null);
    try {
      const found = await call(sandboxPath(namespace, name, 'mcp'), { method: 'POST', accept: 'application/json, text/event-stream', headers: MCP, body: { jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta: META } } });
      if (found.error) setError(found.error);
      else setTools(found.result.tools);
    } catch (failed) { if (!ended(failed)) setError(failed); }
  };
  return html`<${Card} title="Agent" actions=${html`<${Button} allowed=${can} onClick=${list}>List its tools</${Button}>`}>
    <${Facts} facts=${[['State', enforced ? html`<${Status} word=${enforced.reason} tone=${{ True: 'ok', False: 'bad' }[enforced.status] ?? 'unknown'}/> ${visibleText(enforced.message ?? '')}` : 'runs as its template says'],
      ...(agent ? [['Callers', CALLERS[agent.callers ?? 'Paddock']], ['Folder', agent.root ?? '/workspace'], ['git', agent.git ?? 'Local'], agent.build?.length && ['build', agent.build.join(' ')], agent.test?.length && ['test', agent.test.join(' ')]] : []),
      ['MCP', html`<code class="wrap">${`/apis/paddock/v1alpha1/${sandboxPath(namespace, name, 'mcp')}`}</code>`]]}/><${ErrorNote} error=${error}/>
    ${tools ? html`<dl class="facts gap">${tools.map((each) => html`<div key=${each.name}><dt><code>${visibleText(each.name)}</code></dt><dd>${visibleText(each.description ?? '')}</dd></div>`)}</dl>` : ''}</${Card}>`;
}

function Overview({ object, namespace, name }) {
  const { status = {}, spec, metadata } = object;
  const template = spec.template ?? {};
  const end = status.lastTermination;
  const asked = spec.resources?.limits ?? {};
  const held = status.resources?.limits ?? {};
  const names = [...new Set(['cpu', 'memory', 'pids', ...Object.keys(asked), ...Object.keys(held)])];
  return html`<div class="grid">
    <${Why} namespace=${namespace} name=${name} version=${metadata.resourceVersion}/>
    <${Card} title="Conditions"><${Conditions} conditions=${status.conditions}/></${Card}>
    <${Card} title="Sandbox"><${Facts} facts=${[
      ['Image', spec.template?.image ?? html`template <a href="#/sandboxtemplates/${encodeURIComponent(namespace)}/${encodeURIComponent(spec.templateRef?.name)}">${visibleText(spec.templateRef?.name)}</a>`],
      ['Security level', html`<a href="#/securityprofiles/${encodeURIComponent(spec.securityLevel ?? spec.template?.securityLevel ?? '')}">${visibleText(spec.securityLevel ?? spec.template?.securityLevel ?? 'of its template')}</a>`],
      ['Launch', status.launchType ? `${status.launchType}${status.launchReason ? `: ${status.launchReason}` : ''}` : '–'],
      status.host && status.host !== 'host' && ['Host', html`<a href="#/hosts/${encodeURIComponent(status.host)}">${visibleText(status.host)}</a>`],
      ['Container', status.instanceRef?.name ?? '–'], ['Started', status.startTime ? html`${when(status.startTime)} (<${Age} time=${status.startTime}/> ago)` : '–'], ['Restarts', String(status.restartCount ?? 0)], ['Restart policy', spec.restartPolicy], ['Created', when(metadata.creationTimestamp)],
      metadata.labels && ['Labels', Object.entries(metadata.labels).map(([key, value]) => `${key}=${value}`).join(', ')]]}/></${Card}>
    <${Card} title="Limits"><table class="plain"><thead><tr><th></th><th>Asked</th><th>In force</th></tr></thead><tbody>${names.map((each) => html`<tr key=${each}><td class="quiet">${each}</td><td>${visibleText(asked[each] ?? 'default')}</td><td>${visibleText(held[each] ?? '–')}</td></tr>`)}</tbody></table>
      <p class="quiet gap">“In force” is read back from the host. Limits change while it runs: <a href="#/sandboxes/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/edit">edit</a>.</p></${Card}>
    <${Card} title="Last end">${end ? html`<${Facts} facts=${[['Reason', html`<${Status} word=${end.reason}/>`], ['Exit code', String(end.exitCode ?? '–')], ['Finished', end.finishedTime ? when(end.finishedTime) : '–'], end.message && ['Message', end.message]]}/>${end.logTail?.length ? html`<h3 class="gap">Its last lines</h3><pre class="block" tabindex="0">${end.logTail.map((each) => visibleText(typeof each === 'string' ? each : each.text ?? JSON.stringify(each))).join('\n')}</pre>` : ''}` : html`<p class="quiet">It has not ended yet.</p>`}</${Card}>
    ${'agent' in template || agentOf(status) ? html`<${Agent} object=${object} agent=${template.agent}/>` : ''}<${Preview} namespace=${namespace} name=${name}/><${Connect} namespace=${namespace} name=${name}/></div>`;
}

function Preview({ namespace, name }) {
  const here = useValue(local);
  const can = useCan('use', 'Sandbox', namespace, name, 'portforward');
  const [port, setPort] = useState('8080');
  const [opened, setOpened] = useState([]);
  if (!here) return html`<${Card} title="Preview"><p class="quiet">Web ports are previewed from your own machine: <code>paddock port-forward ${visibleText(name)} 8080 --open</code>, or open this panel with <code>paddock panel</code>. Each preview has an origin of its own, so that its page can't act as this panel.</p></${Card}>`;
  const go = async (event) => {
    event.preventDefault();
    try {
      const url = await preview(namespace, name, Number(port));
      setOpened((old) => [...old.filter((each) => each.url !== url), { url, port }]);
      window.open(url, '_blank', 'noopener');
    } catch (error) { if (!ended(error)) fail(error); }
  };
  return html`<${Card} title="Preview"><form class="row" onSubmit=${go}><label class="row">Port <input type="number" min="1" max="65535" required value=${port} onInput=${(event) => setPort(event.target.value)}/></label><button type="submit" disabled=${!can.allowed} title=${can.reason}><${Icon} name="open"/>Open</button></form>
    ${opened.map((each) => html`<p key=${each.url} class="gap"><a href=${each.url} target="_blank" rel="noopener noreferrer">${each.url}</a> <span class="quiet">port ${each.port}, until this panel's command ends</span></p>`)}
    <p class="quiet gap">Opens at an address of its own, so that the sandbox's page can't act as this panel.</p></${Card}>`;
}

/** Links to a port that may be passed on, and how to connect from a terminal and an editor. */
function Connect({ namespace, name }) {
  const can = useCan('use', 'Sandbox', namespace, name, 'previews');
  const [port, setPort] = useState('8080');
  const [hours, setHours] = useState('8');
  const [links, setLinks] = useState([]);
  const make = async (event) => {
    event.preventDefault();
    try {
      const link = await call(`${sandboxPath(namespace, name)}/previews`, { method: 'POST', body: { port: Number(port), expiresSeconds: Math.round(Number(hours) * 3600) } });
      setLinks((old) => [...old, { ...link, port }]);
    } catch (error) { if (!ended(error)) fail(error); }
  };
  const place = namespace === 'default' ? '' : ` -n ${visibleText(namespace)}`;
  return html`<${Card} title="Connect"><form class="row" onSubmit=${make}><label class="row">Port <input type="number" min="1" max="65535" required value=${port} onInput=${(event) => setPort(event.target.value)}/></label><label class="row">Hours <input type="number" min="0.1" max="168" step="any" required value=${hours} onInput=${(event) => setHours(event.target.value)}/></label><button type="submit" disabled=${!can.allowed} title=${can.reason}>Make a link</button></form>
    ${links.map((each) => html`<p key=${each.url} class="gap"><a href=${each.url} target="_blank" rel="noopener noreferrer">Open port ${each.port}</a> <span class="quiet">until ${new Date(each.expires * 1000).toLocaleString()}; whoever has the link has the port</span></p>`)}
    <p class="gap">SSH: <code>paddock ssh ${visibleText(name)}${place}</code></p><p>IDE: <code>paddock code ${visibleText(name)}${place}</code></p></${Card}>`;
}

export function Events({ namespace, name, kind, version, most = 200 }) {
  const { value, error } = usePolled((signal) => call(`namespaces/${encodeURIComponent(namespace)}/events`, { signal, query: { kind, name, limit: '200' } }), 4000, [namespace, name, kind, version], true);
  const items = [...(value?.items ?? [])].sort((a, b) => Date.parse(b.lastTimestamp) - Date.parse(a.lastTimestamp)).slice(0, most);
  return html`<${ErrorNote} error=${error}/>${!value ? html`<p class="quiet">Loading…</p>` : !items.length ? html`<div class="empty">No events yet.</div>` : html`<div class="scroll" tabindex="0" role="region" aria-label="Events"><table class="data wraps"><thead><tr><th>Type</th><th>Reason</th><th>Message</th><th class="num">Count</th><th class="num">Last</th></tr></thead><tbody>
    ${items.map((each) => html`<tr key=${each.metadata.name}><td><${Status} word=${each.type} tone=${each.type === 'Normal' ? 'ok' : 'warn'}/></td><td><b>${visibleText(each.reason)}</b></td><td title=${visibleText(each.message)}>${visibleText(each.message)}</td><td class="num">${each.count}</td><td class="num"><${Age} time=${each.lastTimestamp}/></td></tr>`)}</tbody></table></div>`}`;
}

function Attest({ namespace, name }) {
  const [run, setRun] = useState(0);
  const { value, error } = usePolled((signal) => call(sandboxPath(namespace, name, 'attest'), { signal }), 0, [namespace, name, run]);
  const tone = { True: 'ok', False: 'bad' }[value?.secured] ?? 'unknown';
  return html`<div class="row gap-below"><${Button} icon="shield" onClick=${() => setRun(run + 1)}>Verify again</${Button}>${value ? html`<span class="quiet">verified ${when(value.time)}</span>` : ''}</div><${ErrorNote} error=${error}/>
    ${!value ? (error ? '' : html`<p class="quiet">Looking at it from inside…</p>`) : html`<div class="verdict ${tone}"><${Icon} name=${tone} size=${18}/><div><b>${visibleText(value.reason)}</b><div>${visibleText(value.message)}</div></div></div>
    <div class="grid"><${Card} title="Compared with its rendered config"><table class="plain"><thead><tr><th>Setting</th><th>Desired</th><th>Found</th></tr></thead><tbody>${value.facts.map((each) => html`<tr key=${each.name}><td><${Status} word=${each.name} tone=${each.holds ? 'ok' : 'bad'}/></td><td class="wrap">${visibleText(each.wanted)}</td><td class="wrap">${visibleText(each.found)}</td></tr>`)}</tbody></table></${Card}>
    <${Card} title="What holds it"><${Facts} facts=${value.report.map((each) => [each.name, each.found])}/></${Card}></div>`}`;
}

function DeleteDialog({ object, onClose }) {
  const { name, namespace } = object.metadata;
  const [plan, setPlan] = useState(null);
  useEffect(() => { call('diff', { method: 'POST', body: { documents: [{ file: 'panel', text: JSON.stringify(written(object)) }], plan: true, delete: true } }).then((found) => setPlan(found.items[0]), () => {}); }, []);
  return html`<${Confirm} title=${`Delete ${name}`} action="Delete" confirm=${name} onClose=${onClose} onDo=${async () => { await call(sandboxPath(namespace, name), { method: 'DELETE' }); toast(`${name}: deletion requested`); location.hash = '#/sandboxes'; }}>
    <p>${visibleText(filesText(object, true))}</p>${plan ? html`<${PlanView} plan=${{ ...plan, changes: [] }} created=${true}/>` : ''}</${Confirm}>`;
}
