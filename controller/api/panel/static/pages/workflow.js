// Workflows and their runs: stages as they go on, with times and last lines; transcripts; artifacts.
import { bytes, clock, download, html, useEffect, useMemo, useRef, useState, useTick, visibleText, when } from '../lib.js';
import { call, ended, pathOf, send, useCan, usePolled } from '../api.js';
import { Age, Button, Card, Confirm, Dialog, ErrorNote, fail, Facts, Icon, Status, toast } from '../ui.js';
import { linkTo } from './list.js';
import { Existing } from './object.js';

const MERGE = 'application/merge-patch+json';
const MOST_LETTERS = 1_000_000;
const LAST_LINES = 3;
const FEW_STAGES = 8; // of so many the last lines are shown of those, too, that have succeeded
const TONES = { Waiting: 'idle', Running: 'wait', Succeeded: 'ok', Failed: 'bad', Skipped: 'idle', Cancelled: 'idle', Pending: 'wait' };
const FINISHED = ['Succeeded', 'Failed', 'Cancelled'];
const RUNS = 'workflowruns';

export default function WorkflowPage(props) {
  const parts = props.kind.kind === 'WorkflowRun' ? { state: phaseOf, actions: RunActions, cards: RunCards, own: true } : { actions: Start, cards: WorkflowCards, own: true };
  return html`<${Existing} ...${props} ...${parts}/>`;
}

const phaseOf = ({ metadata, status }) => {
  const word = metadata.deletionTimestamp ? 'Terminating' : status?.phase ?? 'Pending';
  return [word, TONES[word] ?? 'wait'];
};
const seconds = (from, to) => Math.max(0, ((to ? Date.parse(to) : clock.now()) - Date.parse(from)) / 1000);
function lasted(from, to) {
  if (!from) return '';
  const all = seconds(from, to);
  if (all < 60) return `${all < 10 ? all.toFixed(1) : Math.floor(all)} s`;
  return all < 3600 ? `${Math.floor(all / 60)} min ${Math.floor(all % 60)} s` : `${Math.floor(all / 3600)} h ${Math.floor((all % 3600) / 60)} min`;
}
const workOf = (stage) => (stage.agent ? 'agent' : stage.copy ? 'copy' : 'exec');
function summary(stage) {
  if (stage.agent) return `${stage.agent.model} of ${stage.agent.provider}; tools ${(stage.agent.tools ?? []).join(', ') || 'none'}`;
  if (stage.copy) return `${stage.copy.from} as ${stage.copy.artifact}`;
  return stage.exec?.command ? stage.exec.command.join(' ') : (stage.exec?.commands ?? []).join('; ');
}
const workflowOf = (run) => run.status?.workflowSpec ?? run.spec.workflow ?? { stages: [] };
const allStages = (spec) => [...(spec.stages ?? []), ...(spec.finally ?? []).map((each) => ({ ...each, last: true }))];

function RunActions({ kind, object }) {
  const { name, namespace } = object.metadata;
  const can = useCan('update', kind.kind, namespace, name);
  const may = useCan('create', kind.kind, namespace);
  const [asking, setAsking] = useState(false);
  const over = FINISHED.includes(object.status?.phase);
  const cancel = async () => {
    await call(pathOf(kind, namespace, name), { method: 'PATCH', type: MERGE, body: JSON.stringify({ spec: { runState: 'Cancelled' } }) });
    toast(`${name}: cancelling`);
  };
  return html`${over ? html`<${Button} icon="play" allowed=${may} onClick=${() => begin(namespace, name, { ...object.spec, runState: 'Running' }).catch(fail)}>Run again</${Button}>`
    : html`<${Button} icon="bad" allowed=${can} disabled=${object.spec.runState === 'Cancelled'} onClick=${() => setAsking(true)}>Cancel</${Button}>`}
    ${asking ? html`<${Confirm} title=${`Cancel ${name}`} action="Cancel the run" onClose=${() => setAsking(false)} onDo=${cancel}><p>Its stages are stopped, its finally stages run, and it ends.</p></${Confirm}>` : ''}`;
}

/** Create a run, named after another object, and open its page. */
async function begin(namespace, after, spec) {
  const digits = [...crypto.getRandomValues(new Uint8Array(4))].map((each) => (each % 36).toString(36)).join('');
  const metadata = { name: `${after.replace(/-[0-9a-z]{5}$/, '').slice(0, 44)}-r${digits}`, namespace };
  const made = await call(pathOf(RUNS, namespace), { method: 'POST', body: { apiVersion: 'paddock/v1alpha1', kind: 'WorkflowRun', metadata, spec } });
  location.hash = linkTo({ name: RUNS, namespaced: true }, made.metadata).slice(1);
}

function RunCards({ object }) {
  const { status = {}, spec, metadata } = object;
  const running = !FINISHED.includes(status.phase);
  useTick(running ? 1000 : 60_000);
  const { workflowRef } = spec;
  return html`<${Stages} object=${object}/>
    <${Card} title="Run"><${Facts} facts=${[
      ['Workflow', workflowRef ? html`<a href=${linkTo({ name: 'workflows', namespaced: true }, { namespace: metadata.namespace, name: workflowRef.name })}>${visibleText(workflowRef.name)}</a>` : 'inline, in its spec'],
      ['Sandbox', status.sandboxRef ? html`<a href=${linkTo({ name: 'sandboxes', namespaced: true }, { namespace: metadata.namespace, name: status.sandboxRef.name })}>${visibleText(status.sandboxRef.name)}</a>` : '–'],
      ['Started', status.startTime ? when(status.startTime) : '–'],
      status.completionTime && ['Ended', when(status.completionTime)],
      ['Lasted', lasted(status.startTime, status.completionTime) || '–'],
      status.message && ['Message', status.message],
      ...(status.parameters ?? []).map((each) => [`Parameter ${each.name}`, each.value || '–'])]}/></${Card}>
    <${Artifacts} object=${object} running=${running}/>`;
}

function Stages({ object }) {
  const { status = {} } = object;
  const described = new Map(allStages(workflowOf(object)).map((each) => [each.name, each]));
  const stages = status.stages ?? [];
  const done = stages.filter((each) => each.state === 'Succeeded').length;
  return html`<${Card} wide=${true} title="Stages" actions=${html`<span class="quiet">${done} of ${stages.length} done</span>`}>
    <ol class="stages">${stages.map((each) => html`<${Stage} key=${each.name} run=${object} stage=${each} described=${described.get(each.name) ?? {}} few=${stages.length <= FEW_STAGES}/>`)}</ol></${Card}>`;
}

function Stage({ run, stage, described, few }) {
  const { namespace, name } = run.metadata;
  const work = workOf(described);
  const [opened, setOpened] = useState('');
  const mayRead = useCan('get', 'WorkflowRun', namespace, name, 'transcript');
  const began = stage.attempt > 0 && work !== 'copy';
  const wanted = began && (opened === 'log' || ['Running', 'Failed'].includes(stage.state) || few);
  const { value: text, error } = useOutput(run.metadata, stage, wanted);
  const lines = (text ?? '').trimEnd().split('\n');
  const tail = lines.slice(-LAST_LINES).join('\n');
  const toggle = (part) => setOpened(opened === part ? '' : part);
  return html`<li><${Status} word=${stage.state} tone=${TONES[stage.state]}/>
    <div class="stage"><div class="row"><b>${visibleText(stage.name)}</b><span class="badge">${work}</span>${described.last ? html`<span class="badge">finally</span>` : ''}${stage.attempt > 1 ? html`<span class="quiet">attempt ${stage.attempt}</span>` : ''}
      <span class="quiet num">${stage.startTime ? html`<time datetime=${stage.startTime} title="${when(stage.startTime)} – ${when(stage.completionTime)}">${lasted(stage.startTime, stage.completionTime)}</time>` : ''}</span></div>
      <div class="quiet wrap"><code>${visibleText(summary(described).slice(0, 300))}</code></div>
      ${stage.state === 'Running' && stage.retryTime ? html`<div class="quiet">again at ${when(stage.retryTime)}</div>` : ''}
      ${stage.reason || stage.message || stage.exitCode ? html`<div class="wrap">${stage.reason ? html`<b>${visibleText(stage.reason)}</b> ` : ''}${visibleText(stage.message ?? '')}${stage.exitCode ? ` exit code ${stage.exitCode}` : ''}</div>` : ''}
      ${(stage.outputs ?? []).map((each) => html`<div key=${each.name} class="wrap"><span class="quiet">${visibleText(each.name)}</span> <code>${visibleText(each.value)}</code></div>`)}
      <${ErrorNote} error=${opened ? error : null}/>
      ${wanted && opened !== 'log' && tail ? html`<pre class="block tail" tabindex="0" aria-label="Last lines of ${visibleText(stage.name)}">${visibleLines(tail)}</pre>` : ''}
      ${opened === 'log' ? html`<pre class="block" tabindex="0" aria-label="Log of ${visibleText(stage.name)}">${visibleLines(text ?? '') || 'It wrote nothing.'}</pre>` : ''}
      ${opened === 'transcript' ? html`<${Transcript} metadata=${run.metadata} stage=${stage}/>` : ''}
      ${began ? html`<div class="row gap"><${Button} aria-expanded=${String(opened === 'log')} onClick=${() => toggle('log')}>Log of ${visibleText(stage.name)}</${Button}>${work === 'agent' ? html`<${Button} allowed=${mayRead} aria-expanded=${String(opened === 'transcript')} onClick=${() => toggle('transcript')}>Transcript</${Button}>` : ''}</div>` : ''}
    </div></li>`;
}

const visibleLines = (text) => text.split('\n').map(visibleText).join('\n');

/** The output of a stage. While it runs, what is new of it is read every two seconds. */
function useOutput({ namespace, name, uid }, stage, wanted) {
  const key = `${uid}/${stage.name}/${stage.attempt}`;
  const held = useRef({});
  const ask = async (signal) => {
    if (held.current.key !== key) held.current = { key, size: 0, text: '', decoder: new TextDecoder() };
    const mine = held.current;
    const answer = await send(`${pathOf(RUNS, namespace, name)}/logs`, { signal, query: { stage: stage.name, attempt: String(stage.attempt), offset: String(mine.size) } });
    const data = await answer.arrayBuffer();
    mine.size += data.byteLength;
    mine.text = (mine.text + mine.decoder.decode(data, { stream: true })).slice(-MOST_LETTERS);
    return mine.text;
  };
  return usePolled(wanted ? ask : null, stage.state === 'Running' ? 2000 : 0, [key, stage.state, wanted], true);
}

function Transcript({ metadata: { namespace, name }, stage }) {
  const { value, error } = usePolled((signal) => call(`${pathOf(RUNS, namespace, name)}/transcript`, { signal, query: { stage: stage.name } }), stage.state === 'Running' ? 3000 : 0, [name, stage.name, stage.state], true);
  if (!value) return error ? html`<${ErrorNote} error=${error}/>` : html`<p class="quiet">Loading…</p>`;
  const tokens = value.items.reduce((sum, each) => sum + (each.promptTokens ?? 0) + (each.completionTokens ?? 0), 0);
  return html`<p class="quiet gap">${value.items.filter((each) => each.role === 'assistant').length} turns, ${tokens} tokens</p><ol class="transcript" aria-label="Transcript of ${visibleText(stage.name)}">${value.items.map((each, at) => html`<li key=${at}><span class="badge">${visibleText(each.tool ?? each.role)}</span>
    <div>${each.text ? html`<pre class="block" tabindex="0">${visibleLines(each.text)}</pre>` : ''}${(each.calls ?? []).map((one) => html`<div key=${one.id} class="wrap">calls <code>${visibleText(one.name)} ${visibleText(JSON.stringify(one.arguments))}</code></div>`)}</div></li>`)}</ol>`;
}

function Artifacts({ object, running }) {
  const { namespace, name, resourceVersion } = object.metadata;
  const can = useCan('get', 'WorkflowRun', namespace, name, 'artifacts');
  const path = `${pathOf(RUNS, namespace, name)}/artifacts`;
  const { value, error } = usePolled(can.allowed ? (signal) => call(path, { signal }) : null, running ? 5000 : 0, [path, resourceVersion, can.allowed], true);
  const [busy, setBusy] = useState('');
  const get = async (artifact) => {
    setBusy(artifact);
    try { download(await (await send(`${path}/${encodeURIComponent(artifact)}`)).blob(), `${artifact}.tar`); } catch (failed) { if (!ended(failed)) fail(failed); }
    setBusy('');
  };
  return html`<${Card} title="Artifacts"><${ErrorNote} error=${error}/>${!can.allowed && can.reason ? html`<p class="quiet">${visibleText(can.reason)}</p>` : !value ? html`<p class="quiet">Loading…</p>` : !value.items.length ? html`<p class="quiet">None${running ? ' yet' : ''}.</p>` : html`<table class="plain"><thead><tr><th>Artifact</th><th>Files</th><th class="num">Size</th><th><span class="visually-hidden">Actions</span></th></tr></thead><tbody>${value.items.map((each) => html`<tr key=${each.name}>
      <td><b>${visibleText(each.name)}</b><div class="quiet">of stage ${visibleText(each.stage)}</div></td>
      <td><details><summary>${each.files.length}</summary><ul class="words">${each.files.slice(0, 200).map((file) => html`<li key=${file.path} title="sha256 ${file.sha256}"><code>${visibleText(file.path)}</code> ${bytes(file.size)}</li>`)}</ul></details></td>
      <td class="num">${bytes(each.files.reduce((sum, file) => sum + file.size, 0))}</td><td class="num"><${Button} icon="down" disabled=${busy === each.name} aria-label="Download ${visibleText(each.name)}" onClick=${() => get(each.name)}/></td></tr>`)}</tbody></table>`}</${Card}>`;
}

function WorkflowCards({ object }) {
  const { spec, metadata } = object;
  return html`<${Card} title="Stages"><table class="plain"><thead><tr><th>Stage</th><th>Work</th></tr></thead><tbody>${allStages(spec).map((each) => html`<tr key=${each.name}>
      <td><b>${visibleText(each.name)}</b><div class="quiet">${workOf(each)}${each.last ? ', finally' : ''}${each.after?.length ? `, after ${visibleText(each.after.join(', '))}` : ''}</div></td>
      <td class="wrap"><code>${visibleText(summary(each).slice(0, 300))}</code><div class="quiet">${[each.timeoutSeconds && `at most ${each.timeoutSeconds} s`, each.retries?.limit && `${each.retries.limit} retries`].filter(Boolean).join(', ')}</div></td></tr>`)}</tbody></table></${Card}>
    <${Card} title="Parameters">${(spec.parameters ?? []).length ? html`<${Facts} facts=${spec.parameters.map((each) => [each.name, html`${each.default === undefined || each.default === null ? html`<span class="badge">required</span>` : html`<code>${visibleText(each.default)}</code>`} <span class="quiet">${visibleText(each.description ?? '')}</span>`])}/>` : html`<p class="quiet">None.</p>`}</${Card}>
    <${Runs} namespace=${metadata.namespace} workflow=${metadata.name}/>`;
}

function Runs({ namespace, workflow }) {
  const { value, error } = usePolled((signal) => call(pathOf(RUNS, namespace), { signal }), 4000, [namespace, workflow], true);
  const found = useMemo(() => (value?.items ?? []).filter((each) => each.spec.workflowRef?.name === workflow).sort((a, b) => Date.parse(b.metadata.creationTimestamp) - Date.parse(a.metadata.creationTimestamp)).slice(0, 50), [value, workflow]);
  return html`<${Card} wide=${true} title="Runs"><${ErrorNote} error=${error}/>${!value ? html`<p class="quiet">Loading…</p>` : !found.length ? html`<p class="quiet">It has not run yet.</p>` : html`<table class="plain"><thead><tr><th>Run</th><th>Status</th><th>Stages</th><th class="narrow-hide">Lasted</th><th class="num">Age</th></tr></thead><tbody>${found.map((each) => { const [word, tone] = phaseOf(each); const stages = each.status?.stages ?? []; return html`<tr key=${each.metadata.uid}>
      <td><a class="strong" href=${linkTo({ name: RUNS, namespaced: true }, each.metadata)}>${visibleText(each.metadata.name)}</a></td><td><${Status} word=${word} tone=${tone}/></td><td>${stages.filter((one) => one.state === 'Succeeded').length}/${stages.length}</td>
      <td class="narrow-hide">${lasted(each.status?.startTime, each.status?.completionTime)}</td><td class="num"><${Age} time=${each.metadata.creationTimestamp}/></td></tr>`; })}</tbody></table>`}</${Card}>`;
}

/** The button that runs a workflow, and its dialog with the parameters. */
function Start({ object }) {
  const { name, namespace } = object.metadata;
  const can = useCan('create', 'WorkflowRun', namespace);
  const [open, setOpen] = useState(false);
  return html`<${Button} icon="play" tone="primary" allowed=${can} onClick=${() => setOpen(true)}>Run</${Button}>
    ${open ? html`<${RunDialog} namespace=${namespace} name=${name} spec=${object.spec} onClose=${() => setOpen(false)}/>` : ''}`;
}

function RunDialog({ namespace, name, spec, onClose }) {
  const [values, setValues] = useState({});
  const [sandbox, setSandbox] = useState('');
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const go = async () => {
    setBusy(true);
    setError(null);
    const parameters = Object.entries(values).filter(([, value]) => value !== '').map(([key, value]) => ({ name: key, value }));
    try {
      await begin(namespace, name, { workflowRef: { name }, ...(parameters.length ? { parameters } : {}), ...(sandbox ? { sandboxRef: { name: sandbox } } : {}) });
      onClose();
    } catch (failed) { if (!ended(failed)) setError(failed); setBusy(false); }
  };
  return html`<${Dialog} title=${`Run ${name}`} onClose=${onClose} footer=${html`<${Button} onClick=${onClose}>Close</${Button}><${Button} tone="primary" icon="play" disabled=${busy} onClick=${go}>Start</${Button}>`}>
    ${(spec.parameters ?? []).map((each) => html`<label key=${each.name} class="field"><span>${visibleText(each.name)}${each.default === undefined || each.default === null ? ' (required)' : ''}</span><input value=${values[each.name] ?? ''} placeholder=${each.default ?? ''} onInput=${(event) => setValues({ ...values, [each.name]: event.target.value })}/><div class="help">${visibleText(each.description ?? '')}</div></label>`)}
    ${spec.sandbox ? '' : html`<label class="field"><span>Sandbox (required)</span><input value=${sandbox} onInput=${(event) => setSandbox(event.target.value)}/><div class="help">The workflow describes none: it runs in an existing one.</div></label>`}
    ${!(spec.parameters ?? []).length && spec.sandbox ? html`<p>It has no parameters, and runs in a sandbox of its own.</p>` : ''}<${ErrorNote} error=${error}/></${Dialog}>`;
}
