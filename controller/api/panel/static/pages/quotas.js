// Quotas: used against hard, and the sandboxes that wait for room, in the order in which they will get it.
import { bytes, html, quantity, readable, useMemo, useValue, visibleText } from '../lib.js';
import { call, kinds, useCan, usePolled } from '../api.js';
import { Age, Button, Card, DataTable, ErrorNote, Icon, Meter, Status } from '../ui.js';
import { linkTo, namespace, NamespaceSelect } from './list.js';
import { useObjects } from './pools.js';

const ROWS = ['cpu', 'memory', 'pids', 'sandboxes', 'disk', 'gpus', 'objects'];

export default function Quotas({ kind }) {
  const space = useValue(namespace);
  const sandboxKind = useValue(kinds).find((each) => each.kind === 'Sandbox');
  const { items, error, loading } = useObjects(kind, space);
  const boxes = useObjects(sandboxKind, space);
  const can = useCan('create', kind.kind, kind.namespaced ? space || null : null);
  const waiting = useMemo(() => boxes.items.flatMap((each) => {
    const scheduled = (each.status?.conditions ?? []).find((one) => one.type === 'Scheduled' && one.status === 'False');
    return scheduled && !each.metadata.deletionTimestamp ? [{ each, scheduled }] : [];
  }).sort((a, b) => (b.each.spec.priority ?? 0) - (a.each.spec.priority ?? 0) || Date.parse(a.each.metadata.creationTimestamp) - Date.parse(b.each.metadata.creationTimestamp)), [boxes.items]);
  const host = kind.kind === 'HostQuota';
  return html`<div class="head"><div class="title"><h1 tabindex="-1">${host ? 'Host quota' : 'Quotas'}</h1></div>${can.allowed ? (host && items.length ? '' : html`<a class="button primary" href="#/${kind.name}/new"><${Icon} name="plus"/>New ${host ? 'host quota' : 'quota'}</a>`) : html`<${Button} icon="plus" allowed=${can}>New quota</${Button}>`}</div>
    <div class="tools">${host ? '' : html`<${NamespaceSelect}/>`}<span class="quiet">Limits are counted, not use: a sandbox reserves its limits while it runs.</span></div><${ErrorNote} error=${error}/>
    ${loading ? html`<p class="quiet">Loading…</p>` : !items.length ? html`<div class="empty"><${Icon} name="gauge" size=${36}/><b>No quota</b><span>${host ? 'The host’s own size bounds all sandboxes.' : 'Only the host bounds the sandboxes of this namespace.'}</span></div>` : html`<div class="grid">${items.map((each) => html`<${Quota} key=${each.metadata.uid} kind=${kind} quota=${each}/>`)}</div>`}
    ${host ? '' : html`<${ByNamespace} space=${space} quotas=${items} sandboxes=${boxes.items}/>`}
    <h2 class="gap gap-below">Waiting for room (${waiting.length})</h2>
    <${DataTable} label="Waiting sandboxes" rows=${waiting} rowKey=${(row) => row.each.metadata.uid} href=${(row) => linkTo(sandboxKind, row.each.metadata)} empty="No sandbox waits." initialSort=${{ key: 'place', down: false }} columns=${[
      { key: 'place', title: 'Place', num: true, value: (row) => waiting.indexOf(row), cell: (row) => waiting.indexOf(row) + 1 },
      { key: 'name', title: 'Sandbox', value: (row) => row.each.metadata.name, cell: (row) => html`<a class="strong" href=${linkTo(sandboxKind, row.each.metadata)}>${visibleText(row.each.metadata.name)}</a>` },
      { key: 'namespace', title: 'Namespace', hide: 'narrow-hide', value: (row) => row.each.metadata.namespace, cell: (row) => row.each.metadata.namespace },
      { key: 'priority', title: 'Priority', num: true, value: (row) => row.each.spec.priority ?? 0, cell: (row) => row.each.spec.priority ?? 0 },
      { key: 'reason', title: 'Reason', value: (row) => row.scheduled.reason, cell: (row) => html`<${Status} word=${row.scheduled.reason} tone="wait"/>` },
      { key: 'message', title: 'Message', cell: (row) => html`<span title=${visibleText(row.scheduled.message)}>${visibleText(row.scheduled.message)}</span>` },
      { key: 'since', title: 'Since', num: true, value: (row) => -Date.parse(row.scheduled.lastTransitionTime), cell: (row) => html`<${Age} time=${row.scheduled.lastTransitionTime}/>` },
    ]}/>`;
}

function Quota({ kind, quota }) {
  const used = quota.status?.used ?? {};
  const hard = quota.status?.hard ?? quota.spec.hard ?? {};
  const rows = ROWS.filter((each) => each in used || each in hard);
  return html`<${Card} title=${kind.namespaced ? `${quota.metadata.namespace} / ${quota.metadata.name}` : quota.metadata.name} actions=${html`<a class="button" href=${linkTo(kind, quota.metadata, 'edit')}><${Icon} name="edit"/>Edit</a>`}>
    <table class="plain"><thead><tr><th>Resource</th><th>Used of hard</th></tr></thead><tbody>${rows.map((each) => html`<tr key=${each}><td class="quiet">${each}</td><td>${hard[each] !== undefined ? html`<${Meter} label="${each} of ${quota.metadata.name}" used=${quantity(used[each] ?? 0)} most=${quantity(hard[each])} text="${readable(used[each] ?? 0)} / ${readable(hard[each])}"/>` : html`<span class="num">${visibleText(used[each])}</span> <span class="quiet">no limit</span>`}</td></tr>`)}</tbody></table></${Card}>`;
}

const USAGE_MS = 10_000;
/** The least that the quotas of a namespace allow; Infinity where none has a bound. */
const hardOf = (quotas, name) => Math.min(...quotas.map((each) => quantity((each.status?.hard ?? each.spec.hard ?? {})[name])).filter((each) => !Number.isNaN(each)));

/** What the running sandboxes of each namespace use now, beside what they reserve and what their quotas allow. */
function ByNamespace({ space, quotas, sandboxes }) {
  const path = space ? `namespaces/${encodeURIComponent(space)}/sandboxes/-/metrics` : 'sandboxes/-/metrics';
  const { value } = usePolled((signal) => call(path, { signal, query: { maxAgeSeconds: '10' } }), USAGE_MS, [path], true);
  const rows = useMemo(() => {
    const byName = new Map();
    const row = (namespace) => { if (!byName.has(namespace)) byName.set(namespace, { namespace, sandboxes: 0, running: 0, cpu: 0, memory: 0, quotas: [] }); return byName.get(namespace); };
    for (const { metadata } of sandboxes) row(metadata.namespace).sandboxes += 1;
    for (const quota of quotas) row(quota.metadata.namespace).quotas.push(quota);
    for (const { metadata, usage } of value?.items ?? []) {
      const sums = row(metadata.namespace);
      sums.running += 1;
      sums.cpu += usage.cpuPercent / 100;
      sums.memory += usage.memoryUsageBytes;
    }
    return [...byName.values()];
  }, [sandboxes, quotas, value]);
  const used = (row, name, amount, format) => {
    const most = hardOf(row.quotas, name);
    return Number.isFinite(most) ? html`<${Meter} label="${name} used in ${row.namespace}" used=${amount} most=${most} text="${format(amount)} / ${format(most)}"/>` : html`<span class="num">${format(amount)}</span>`;
  };
  const cores = (count) => count.toFixed(2);
  return html`<h2 class="gap gap-below">Usage by namespace</h2><${DataTable} label="Usage by namespace" rows=${rows} rowKey=${(row) => row.namespace} empty="No sandboxes." columns=${[
    { key: 'namespace', title: 'Namespace', value: (row) => row.namespace, cell: (row) => html`<b>${visibleText(row.namespace)}</b>` },
    { key: 'sandboxes', title: 'Sandboxes', num: true, value: (row) => row.sandboxes, cell: (row) => row.sandboxes },
    { key: 'running', title: 'Running', num: true, value: (row) => row.running, cell: (row) => row.running },
    { key: 'cpu', title: 'CPU used', value: (row) => row.cpu, cell: (row) => used(row, 'cpu', row.cpu, cores) },
    { key: 'memory', title: 'Memory used', value: (row) => row.memory, cell: (row) => used(row, 'memory', row.memory, bytes) },
  ]}/>`;
}
