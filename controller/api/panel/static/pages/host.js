// The hosts of this daemon's store; of one: its size, its conditions, and what `paddock doctor` finds.
import { html, useState, visibleText } from '../lib.js';
import { call, usePolled } from '../api.js';
import { Button, Card, Conditions, ErrorNote, Facts, Icon, Status } from '../ui.js';
import { KindPage } from './list.js';
import { flat } from './object.js';
import { useObjects } from './pools.js';

const TONES = { ok: 'ok', warning: 'warn', problem: 'bad' };

export default function HostPage({ kind, name }) {
  const { items, error, loading } = useObjects(kind, '');
  if (!name && items.length > 1) return html`<${KindPage} kind=${kind} title="Hosts"/>`;
  const object = items.find((each) => !name || each.metadata.name === name);
  if (!object && !loading && !error) return html`<h1 tabindex="-1">Not found</h1><p class="quiet">There is no host ${visibleText(name)}.</p>`;
  return html`<${Host} object=${object} error=${error} many=${items.length > 1}/>`;
}

function Host({ object, error, many }) {
  const [run, setRun] = useState(0);
  const [all, setAll] = useState(false);
  const doctor = usePolled((signal) => call('doctor', { signal }), 0, [run]);
  const status = object?.status;
  const findings = doctor.value?.items ?? [];
  const count = (grade) => findings.filter((each) => each.grade === grade).length;
  const shown = findings.filter((each) => all || each.grade !== 'ok');
  const conditionOf = (type) => status?.conditions?.find((each) => each.type === type)?.status;
  const away = conditionOf('DaemonReachable') === 'Unknown';
  const working = ['EngineReachable', 'StoreWritable'].every((type) => conditionOf(type) === 'True');
  const [word, tone] = away ? ['Unknown', 'wait'] : working ? ['Ready', 'ok'] : ['NotReady', 'bad'];
  const cordoned = object?.spec?.schedulable === false;
  return html`<div class="head"><div class="title"><h1 tabindex="-1">${many ? `Host ${visibleText(object.metadata.name)}` : 'Host'}</h1>${status ? html`<${Status} word=${word} tone=${tone}/>${cordoned ? html`<${Status} word="SchedulingDisabled" tone="warn"/>` : ''}` : ''}</div></div><${ErrorNote} error=${error}/>
    ${!status ? html`<p class="quiet">Loading…</p>` : html`<div class="tiles">
      <div class="tile"><span class="label">Processors</span><span class="figure">${status.capacity?.cpu ?? '–'}</span></div>
      <div class="tile"><span class="label">Memory</span><span class="figure">${status.capacity ? (parseInt(status.capacity.memory, 10) / 2 ** 20).toFixed(1) : '–'} <small>GiB</small></span></div>
      <div class="tile"><span class="label">Instances</span><span class="figure">${status.instances ?? '–'}</span></div>
      <div class="tile"><span class="label">Engine</span><span class="figure">${visibleText((status.engine?.version ?? '–').split('+')[0])}</span></div></div>
    <div class="grid"><${Card} title="Conditions"><${Conditions} conditions=${status.conditions}/></${Card}>
      <${Card} title="Engine and daemon"><${Facts} facts=${flat({ engine: status.engine, paddock: status.paddock })}/></${Card}>
      <${Card} wide=${true} title=${many ? 'Doctor of the host that answers' : 'Doctor'} actions=${html`${findings.length ? html`<span class="quiet">${count('problem')} problems, ${count('warning')} warnings, ${count('ok')} fine</span><${Button} aria-pressed=${String(all)} onClick=${() => setAll(!all)}>${all ? 'Only findings' : 'Show all'}</${Button}>` : ''}<${Button} icon="shield" onClick=${() => setRun(run + 1)}>Check again</${Button}>`}>
        <${ErrorNote} error=${doctor.error}/>${!doctor.value ? (doctor.error ? '' : html`<p class="quiet">Checking this host…</p>`) : !shown.length ? html`<div class="note ok"><${Icon} name="ok"/>Nothing to do.</div>`
        : html`<table class="plain stack"><thead><tr><th>Check</th><th>Found</th><th class="narrow-hide">What to do</th></tr></thead><tbody>${shown.map((each) => html`<tr key=${each.check}><td><${Status} word=${each.check} tone=${TONES[each.grade]} title=${each.grade}/></td><td class="wrap">${visibleText(each.found)}${each.meaning ? html`<div class="quiet">${visibleText(each.meaning)}</div>` : ''}</td><td class="wrap narrow-hide">${visibleText(each.action)}</td></tr>`)}</tbody></table>`}</${Card}></div>`}`;
}
