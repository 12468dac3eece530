// Warm pools: how many are ready, claimed, and being refilled.
import { html, useEffect, useState, useValue, visibleText } from '../lib.js';
import { call, follow, pathOf, useCan } from '../api.js';
import { Age, Button, DataTable, ErrorNote, fail, Icon, Status, toast, toneOf } from '../ui.js';
import { linkTo, namespace, NamespaceSelect, useSelection } from './list.js';

/** All objects of a kind, live: {items, error, loading}. */
export function useObjects(kind, space) {
  const [state, set] = useState({ items: [], loading: true });
  useEffect(() => {
    let items = new Map();
    let due = 0;
    const soon = () => { due ||= requestAnimationFrame(() => { due = 0; set({ items: [...items.values()], loading: false }); }); };
    const stop = follow({
      path: pathOf(kind, kind.namespaced ? space : ''), watchable: kind.verbs.includes('watch'),
      onList: (list) => { items = new Map(list.items.map((each) => [each.metadata.uid, each])); soon(); },
      onEvent: (type, object) => { if (type === 'DELETED') items.delete(object.metadata.uid); else items.set(object.metadata.uid, object); soon(); },
      onError: (error) => set((old) => ({ ...old, error, loading: false })),
    });
    return () => { stop(); cancelAnimationFrame(due); };
  }, [kind, space]);
  return state;
}

/** What a pool is doing: from its conditions and counts. */
function refill(pool) {
  const { status = {}, spec } = pool;
  const bad = (status.conditions ?? []).find((each) => each.status !== 'True' && each.type !== 'Outdated');
  const missing = (spec.warmReplicas ?? 1) - (status.readyReplicas ?? 0);
  if (missing > 0) return { tone: bad && toneOf(bad.reason) === 'bad' ? 'bad' : 'wait', word: bad?.reason ?? 'Filling', text: bad?.message || `${missing} to come` };
  if (status.outdatedReplicas) return { tone: 'wait', word: 'Replacing', text: `${status.outdatedReplicas} of an older template` };
  return { tone: 'ok', word: 'Full', text: '' };
}

export default function Pools({ kind }) {
  const space = useValue(namespace);
  const { items, error, loading } = useObjects(kind, space);
  const can = useCan('create', kind.kind, space || null);
  const selection = useSelection(kind, items);
  const columns = [
    ...selection.columns[0],
    { key: 'name', title: 'Name', value: (row) => row.metadata.name, cell: (row) => html`<a class="strong" href=${linkTo(kind, row.metadata)}>${visibleText(row.metadata.name)}</a>` },
    ...(space ? [] : [{ key: 'namespace', title: 'Namespace', value: (row) => row.metadata.namespace, cell: (row) => row.metadata.namespace }]),
    { key: 'template', title: 'Template', value: (row) => row.spec.templateRef.name, cell: (row) => html`<a href="#/sandboxtemplates/${encodeURIComponent(row.metadata.namespace)}/${encodeURIComponent(row.spec.templateRef.name)}">${visibleText(row.spec.templateRef.name)}</a>` },
    { key: 'warm', title: 'Warm and ready', value: (row) => row.status?.readyReplicas ?? 0, cell: (row) => { const [ready, wanted] = [row.status?.readyReplicas ?? 0, row.spec.warmReplicas ?? 1]; return html`<${Warm} ready=${ready} wanted=${wanted}/>`; } },
    { key: 'claimed', title: 'Claimed', num: true, value: (row) => row.status?.claimedReplicas ?? 0, cell: (row) => `${row.status?.claimedReplicas ?? 0}${row.spec.maxReplicas ? ` of ${row.spec.maxReplicas}` : ''}` },
    { key: 'refill', title: 'Refill', value: (row) => refill(row).word, cell: (row) => { const found = refill(row); return html`<span class="row"><${Status} word=${found.word} tone=${found.tone}/><span class="quiet" title=${visibleText(found.text)}>${visibleText(found.text)}</span></span>`; } },
    { key: 'scale', title: 'Keep warm', cell: (row) => html`<${Scale} kind=${kind} pool=${row}/>` },
    { key: 'age', title: 'Age', num: true, hide: 'narrow-hide', value: (row) => -Date.parse(row.metadata.creationTimestamp), cell: (row) => html`<${Age} time=${row.metadata.creationTimestamp}/>` },
    ...selection.columns[1],
  ];
  return html`<div class="head"><div class="title"><h1 tabindex="-1">Pools</h1><span class="badge">${loading ? '…' : items.length}</span></div>${can.allowed ? html`<a class="button primary" href="#/${kind.name}/new"><${Icon} name="plus"/>New pool</a>` : html`<${Button} icon="plus" allowed=${can}>New pool</${Button}>`}</div>
    <div class="tools"><${NamespaceSelect}/><span class="quiet">A sandbox of the same template starts from a warm member at once.</span></div><${ErrorNote} error=${error}/>
    ${selection.bar}${loading ? html`<p class="quiet">Loading…</p>` : html`<${DataTable} label="Pools" columns=${columns} rows=${items} rowKey=${(row) => row.metadata.uid} href=${(row) => linkTo(kind, row.metadata)} empty=${html`<${Icon} name="layers" size=${36}/><b>No pools</b><span>A pool keeps sandboxes of a template ready before anyone asks.</span>`}/>`}`;
}

function Warm({ ready, wanted }) {
  return html`<div class="meter ok"><svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" height="6"/><rect class="fill" width=${wanted ? Math.min(100, (ready / wanted) * 100) : 100} height="6"/></svg><span class="num">${ready} of ${wanted}</span></div>`;
}

function Scale({ kind, pool }) {
  const can = useCan('update', kind.kind, pool.metadata.namespace, pool.metadata.name);
  const wanted = pool.spec.warmReplicas ?? 1;
  const set = (count) => call(pathOf(kind, pool.metadata.namespace, pool.metadata.name), { method: 'PATCH', type: 'application/merge-patch+json', body: JSON.stringify({ metadata: { resourceVersion: pool.metadata.resourceVersion }, spec: { warmReplicas: count } }) }).then(() => toast(`${pool.metadata.name}: keeps ${count} warm`), fail);
  return html`<span class="row"><${Button} allowed=${can} disabled=${wanted < 1} aria-label="Keep one less warm in ${visibleText(pool.metadata.name)}" onClick=${() => set(wanted - 1)}>−</${Button}><span class="num">${wanted}</span><${Button} allowed=${can} aria-label="Keep one more warm in ${visibleText(pool.metadata.name)}" onClick=${() => set(wanted + 1)}>+</${Button}></span>`;
}
