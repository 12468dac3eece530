// Quotas: used against hard, and the sandboxes that wait for room, in the order in which they will get it.
import { html, quantity, readable, useMemo, useValue, visibleText } from '../lib.js';
import { kinds, useCan } from '../api.js';
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
