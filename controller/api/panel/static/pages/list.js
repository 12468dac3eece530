// A live table of any kind, with the columns that the daemon gives it.
import { ageSeconds, bytes, h, html, observable, quantity, useEffect, useMemo, useRef, useState, useValue, visibleText, wordsOf } from '../lib.js';
import { call, follow, link, pathOf, TABLE, useCan, usePolled, who } from '../api.js';
import { Age, Button, DataTable, ErrorNote, fail, Icon, Meter, Status, toneOf } from '../ui.js';

/** The namespace that lists show; '' is all. */
export const namespace = observable(sessionStorage.getItem('paddock.namespace') ?? '');

/** The namespaces that the caller's grants name; none for a caller who may read all. */
export function ownNamespaces(me) {
  const found = (me?.grants ?? []).flatMap((each) => each.namespaces);
  return found.includes('*') ? [] : found.filter((each) => !each.endsWith('*'));
}

/** A line that names the hosts whose `what` a list lacks. */
export function Missing({ hosts, what }) {
  return hosts?.length ? html`<div class="note warn" role="status">${visibleText(`Without the ${what} on hosts that give no answer: ${hosts.map((each) => `${each.host} (${each.message})`).join('; ')}.`)}</div>` : '';
}

/** Rows of a kind, live: {rows, columns, missing, error, loading}. Changes that come together are drawn together. */
export function useTable(kind, space) {
  const [state, set] = useState({ rows: [], columns: [], loading: true });
  useEffect(() => {
    let rows = new Map();
    let columns = [];
    let missing = null;
    let due = 0;
    const draw = () => { due = 0; set({ rows: [...rows.values()], columns, missing, loading: false }); };
    const soon = () => { due ||= requestAnimationFrame(draw); };
    const keyOf = (row) => row.object.metadata.uid ?? `${row.object.metadata.namespace}/${row.object.metadata.name}`;
    set({ rows: [], columns: [], loading: true });
    const stop = follow({
      path: pathOf(kind, space), accept: TABLE, watchable: kind.verbs.includes('watch'),
      onList: (list) => { columns = list.columnDefinitions; missing = list.missing; rows = new Map(list.rows.map((row) => [keyOf(row), row])); soon(); },
      onEvent: (type, table) => {
        for (const row of table.rows) if (type === 'DELETED') rows.delete(keyOf(row)); else rows.set(keyOf(row), row);
        soon();
      },
      onError: (error) => set((old) => ({ ...old, error, loading: false })),
    });
    return () => { stop(); cancelAnimationFrame(due); };
  }, [kind, space]);
  return state;
}

/** The choice of a namespace. The names of all are read when somebody is about to choose: there may be many objects. */
export function NamespaceSelect() {
  const current = useValue(namespace);
  const me = useValue(who);
  const [asked, setAsked] = useState(false);
  const { value } = usePolled(asked ? (signal) => call('sandboxes', { accept: TABLE, signal }).catch(() => null) : null, 0, [me, asked]);
  const known = [...new Set([...(value?.rows ?? []).map((row) => row.object.metadata.namespace), ...ownNamespaces(me), 'default', current])].filter(Boolean).sort();
  const all = me.grants.some((each) => each.namespaces.includes('*'));
  const choose = (name) => { sessionStorage.setItem('paddock.namespace', name); namespace.set(name); };
  useEffect(() => { if (!all && !current) choose(ownNamespaces(me)[0] ?? 'default'); }, [all]);
  return html`<select aria-label="Namespace" value=${current} onFocus=${() => setAsked(true)} onPointerEnter=${() => setAsked(true)} onChange=${(event) => choose(event.target.value)}>
    ${all ? html`<option value="">All namespaces</option>` : ''}${known.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>`;
}

const STATUS_COLUMNS = new Set(['STATUS', 'STATE', 'PHASE', 'READY', 'ACCEPTED', 'TYPE']);
const TITLES = { CPU: 'CPU', PIDS: 'PIDs', GPUS: 'GPUs' };
const NUMBERS = new Set(['RESTARTS', 'CPU', 'MEMORY', 'PIDS', 'DESIRED', 'WARM', 'CLAIMED', 'MAX', 'COUNT', 'INSTANCES', 'SANDBOXES', 'DISK', 'GPUS', 'SIZE']);

export function linkTo(kind, metadata, tab = '') {
  const name = encodeURIComponent(metadata.name);
  const head = kind.namespaced ? `#/${kind.name}/${encodeURIComponent(metadata.namespace)}/${name}` : `#/${kind.name}/${name}`;
  return tab ? `${head}/${tab}` : head;
}

/** The columns of a Table of the API for DataTable. `extra` come after the name. */
export function columnsOf(kind, definitions, { everywhere, extra = [], without = [] } = {}) {
  const made = definitions.flatMap((each, at) => {
    const title = each.name;
    if (without.includes(title)) return [];
    const base = { key: title, title: TITLES[title] ?? title.charAt(0) + title.slice(1).toLowerCase(), num: NUMBERS.has(title), hide: each.priority ? 'narrow-hide' : '', value: (row) => row.cells[at] };
    if (title === 'NAME' || (kind.kind === 'Event' && title === 'OBJECT')) return [{ ...base, cell: (row) => (title === 'NAME' ? html`<a class="strong" href=${linkTo(kind, row.object.metadata)}>${visibleText(row.cells[at])}</a>` : visibleText(row.cells[at])) }];
    if (title === 'REASON' && kind.kind === 'Event') return [{ ...base, cell: (row) => html`<a class="strong" href=${linkTo(kind, row.object.metadata)}>${visibleText(row.cells[at])}</a>` }];
    if (title.endsWith(' SEEN')) return [{ ...base, num: true, value: (row) => ageSeconds(row.cells[at]), cell: (row) => visibleText(row.cells[at]) }];
    if (title === 'AGE' && kind.kind !== 'Event') return [{ ...base, num: true, value: (row) => -Date.parse(row.object.metadata.creationTimestamp ?? 0), cell: (row) => (row.object.metadata.creationTimestamp ? html`<${Age} time=${row.object.metadata.creationTimestamp}/>` : visibleText(row.cells[at])) }];
    if (title === 'CPU' || title === 'MEMORY' || title === 'DISK' || title === 'SIZE') return [{ ...base, value: (row) => quantity(String(row.cells[at]).split('/')[0]), cell: (row) => visibleText(row.cells[at]) }];
    if (title === 'READY' && kind.kind !== 'Sandbox') return [{ ...base, num: true, cell: (row) => visibleText(row.cells[at]) }];
    if (STATUS_COLUMNS.has(title)) return [{ ...base, cell: (row) => html`<${Status} word=${row.cells[at]} tone=${kind.kind === 'Sandbox' ? undefined : toneOf(row.cells[at], 'idle')}/>` }];
    return [{ ...base, cell: (row) => html`<span title=${visibleText(row.cells[at])}>${visibleText(row.cells[at])}</span>` }];
  });
  const space = kind.namespaced && everywhere ? [{ key: 'NAMESPACE', title: 'Namespace', hide: 'narrow-hide', value: (row) => row.object.metadata.namespace, cell: (row) => visibleText(row.object.metadata.namespace) }] : [];
  const status = made.findIndex((each) => each.key === 'STATUS');
  const lead = status === 1 ? 2 : 1;
  return [...made.slice(0, 1), ...space, ...made.slice(1, lead), ...extra, ...made.slice(lead)];
}

const matches = (row, words) => {
  const text = `${row.cells.join(' ')} ${row.object.metadata.namespace ?? ''} ${Object.entries(row.object.metadata.labels ?? {}).map(([name, value]) => `${name}=${value}`).join(' ')}`.toLowerCase();
  return words.every((each) => text.includes(each));
};

export function SearchBox({ value, onInput, label }) {
  const input = useRef();
  useEffect(() => {
    const key = (event) => {
      if (event.key === '/' && !/INPUT|TEXTAREA|SELECT/.test(document.activeElement?.tagName) && !document.querySelector('dialog[open]')) { event.preventDefault(); input.current?.focus(); }
    };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, []);
  return html`<div class="searchbox"><${Icon} name="search"/><input ref=${input} type="search" aria-label=${label} placeholder="${label} (/)" value=${value} onInput=${(event) => onInput(event.target.value)}/></div>`;
}

const metaOf = (row) => (row.object ?? row).metadata;
const idOf = (row) => metaOf(row).uid ?? `${metaOf(row).namespace}/${metaOf(row).name}`;
/** Buttons of a row by what they do: [title, icon]. */
const ACTS = { start: ['Start', 'play'], suspend: ['Suspend', 'idle'], restart: ['Restart', 'again'], delete: ['Delete', 'trash'] };

function RowActs({ kind, row, acts, onTask }) {
  const { name, namespace: space = null } = metaOf(row);
  const canUpdate = useCan('update', acts.length > 1 ? kind.kind : '', space);
  const canDelete = useCan('delete', kind.kind, space);
  return html`<span class="acts">${acts.map((each) => html`<${Button} key=${each} tone="ghost" icon=${ACTS[each][1]} allowed=${each === 'delete' ? canDelete : canUpdate} title=${ACTS[each][0]} aria-label="${ACTS[each][0]} ${visibleText(name)}" onClick=${() => onTask({ action: each, rows: [{ metadata: metaOf(row) }] })}/>`)}</span>`;
}

/** The dialogs, and the buttons for what is selected: loaded when they are first needed. */
function Bulk(props) {
  const [module, set] = useState(null);
  useEffect(() => { import('./bulk.js').then(set, () => fail(new Error('this part could not be loaded; reload the panel'))); }, []);
  return module ? h(module.default, props) : '';
}

/**
 * The selection of rows of a list, and what is done with them: {columns, bar}: columns around those of the list, and
 * the line above it. `actsOf` gives the buttons of a row. A kind whose objects nobody deletes has none.
 */
export function useSelection(kind, rows, actsOf = () => ['delete']) {
  const [chosen, setChosen] = useState(() => new Set());
  const [task, setTask] = useState(null);
  const selected = useMemo(() => (chosen.size ? rows.filter((row) => chosen.has(idOf(row))) : []), [rows, chosen]);
  const all = selected.length > 0 && selected.length === rows.length;
  const columns = useMemo(() => {
    if (!kind.verbs.includes('delete')) return [[], []];
    const toggle = (row, on) => setChosen((old) => { const next = new Set(old); if (on) next.add(idOf(row)); else next.delete(idOf(row)); return next; });
    return [
      [{ key: 'select', title: html`<input type="checkbox" aria-label="Select all shown" checked=${all} onChange=${(event) => setChosen(new Set(event.target.checked ? rows.map(idOf) : []))}/>`, cell: (row) => html`<input type="checkbox" aria-label="Select ${visibleText(metaOf(row).name)}" checked=${chosen.has(idOf(row))} onChange=${(event) => toggle(row, event.target.checked)}/>` }],
      [{ key: 'acts', title: html`<span class="visually-hidden">Actions</span>`, num: true, hide: 'narrow-hide', cell: (row) => html`<${RowActs} kind=${kind} row=${row} acts=${actsOf(row)} onTask=${setTask}/>` }],
    ];
  }, [kind, chosen, all, rows]);
  const bar = selected.length || task ? html`<${Bulk} kind=${kind} rows=${selected.map((row) => ({ metadata: metaOf(row) }))} task=${task} onTask=${setTask} onClear=${() => setChosen(new Set())}/>` : '';
  return { columns, bar };
}

export function KindPage({ kind, title }) {
  const chosen = useValue(namespace);
  const space = kind.namespaced ? chosen : '';
  const { rows, columns, missing: without, error, loading } = useTable(kind, space);
  const [text, setText] = useState('');
  const [only, setOnly] = useState('');
  const can = useCan('create', kind.kind, space || null);
  const isSandbox = kind.kind === 'Sandbox';
  const ofHosts = kind.kind === 'Host';
  const { usage, missing } = useUsage((isSandbox || ofHosts) && rows.length > 0, space);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const at = columns.findIndex((each) => each.name === 'STATUS');
  const found = useMemo(() => (!words.length && !only ? rows : rows.filter((row) => matches(row, words) && (!only || group(row.cells[at]) === only))), [rows, text, only, at]);
  const onMany = isSandbox && (missing != null || new Set(rows.map((row) => row.cells[columns.findIndex((each) => each.name === 'HOST')])).size > 1);
  const shownColumns = useMemo(() => {
    if (ofHosts) return columnsOf(kind, columns, { extra: usageColumns(byHost(usage), columns, (row) => row.object.metadata.name), without: ['CPU', 'MEMORY'] });
    if (!isSandbox) return columnsOf(kind, columns, { everywhere: !space, without: kind.kind === 'Event' ? ['NAME', 'FIRST SEEN'] : [] });
    return columnsOf(kind, columns, { everywhere: !space, extra: usageColumns(usage, columns, (row) => row.object.metadata.uid), without: ['READY', 'CPU', 'MEMORY', 'IMAGE', 'LAUNCH', 'CONTAINER', ...(onMany ? [] : ['HOST'])] });
  }, [kind, columns, space, usage, onMany]);
  const selection = useSelection(kind, found, (row) => (!isSandbox ? ['delete'] : group(row.cells[at]) === 'at rest' ? ['start', 'delete'] : ['suspend', 'restart', 'delete']));
  const allColumns = useMemo(() => [...selection.columns[0], ...shownColumns, ...selection.columns[1]], [shownColumns, selection.columns]);
  const writable = kind.verbs.includes('create');
  return html`<div class="head"><div class="title"><h1 tabindex="-1">${title ?? kind.kind}</h1><span class="badge" aria-live="polite">${loading ? '…' : rows.length}</span></div>
    <div class="row">${writable ? (can.allowed ? html`<a class="button primary" href="#/${kind.name}/new"><${Icon} name="plus"/>New ${wordsOf(kind.kind)}</a>` : html`<${Button} icon="plus" allowed=${can}>New ${wordsOf(kind.kind)}</${Button}>`) : ''}</div></div>
    ${isSandbox && !loading ? html`<${Tiles} rows=${rows} at=${at} usage=${usage} only=${only} setOnly=${setOnly}/>` : ''}
    <div class="tools"><${SearchBox} label="Search" value=${text} onInput=${setText}/>${kind.namespaced ? html`<${NamespaceSelect}/>` : ''}
      ${only ? html`<${Button} icon="bad" onClick=${() => setOnly('')}>Only ${only}</${Button}>` : ''}${!writable && kind.readOnly ? html`<span class="quiet grow">${kind.readOnly.charAt(0).toUpperCase()}${kind.readOnly.slice(1)}.</span>` : ''}</div>
    <${ErrorNote} error=${error}/><${Missing} hosts=${missing} what="usage"/><${Missing} hosts=${without} what=${(title ?? kind.name).toLowerCase()}/>
    ${selection.bar}${loading && !error ? html`<p class="quiet">Loading…</p>` : html`<${DataTable} label=${title ?? kind.kind} columns=${allColumns} rows=${found} rowKey=${idOf} wraps=${kind.kind === 'Event'} initialSort=${kind.kind === 'Event' ? { key: 'LAST SEEN', down: false } : undefined} href=${(row) => linkTo(kind, row.object.metadata)}
      empty=${words.length || only ? 'Nothing matches.' : isSandbox ? html`<${Icon} name="box" size=${36}/><b>No sandboxes yet</b><span>Create one here, or run <code>paddock apply -f specs/quickstart.yaml</code>.</span>` : 'Nothing here yet.'}/>`}`;
}

const GROUPS = { ok: 'running', wait: 'pending', unknown: 'pending', idle: 'at rest', warn: 'in trouble', bad: 'in trouble' };
const group = (word) => GROUPS[toneOf(word)];

function Tiles({ rows, at, usage, only, setOnly }) {
  const counts = { running: 0, pending: 0, 'at rest': 0, 'in trouble': 0 };
  for (const row of rows) counts[group(row.cells[at])] += 1;
  const away = useValue(link) !== 'live';
  const cpu = Object.values(usage).reduce((sum, each) => sum + each.cpuPercent, 0);
  const memory = Object.values(usage).reduce((sum, each) => sum + each.memoryUsageBytes, 0);
  return html`<div class="tiles">
    ${[['running', 'ok'], ['pending', 'wait'], ['at rest', 'idle'], ['in trouble', 'bad']].map(([name, tone]) => html`<button key=${name} type="button" class="tile" aria-pressed=${String(only === name)} onClick=${() => setOnly(only === name ? '' : name)}>
      <span class="label"><span class="dot ${away ? 'idle' : tone}"></span>${name.charAt(0).toUpperCase() + name.slice(1)}</span><span class="figure">${away ? '?' : counts[name]}</span></button>`)}
    <div class="tile"><span class="label">CPU used</span><span class="figure">${(cpu / 100).toFixed(2)} <small>cores</small></span></div>
    <div class="tile"><span class="label">Memory used</span><span class="figure">${bytes(memory).split(' ')[0]} <small>${bytes(memory).split(' ')[1] ?? ''}</small></span></div></div>`;
}

const USAGE_SECONDS = 5;
const SANDBOXES_A_SECOND = 40; // so that the host's figures of many sandboxes cost no more than those of some
/**
 * Usage of running sandboxes by uid, with their hosts, every few seconds; open panels share a reading of each host.
 * `missing` are the hosts that gave none; null where there is one host.
 */
function useUsage(wanted, space) {
  const path = space ? `namespaces/${encodeURIComponent(space)}/sandboxes/-/metrics` : 'sandboxes/-/metrics';
  const seconds = useRef(USAGE_SECONDS);
  const ask = async (signal) => {
    const found = await call(path, { signal, query: { maxAgeSeconds: String(seconds.current) } });
    seconds.current = Math.min(60, Math.max(USAGE_SECONDS, found.items.length / SANDBOXES_A_SECOND));
    return found;
  };
  const { value } = usePolled(wanted ? ask : null, () => seconds.current * 1000, [wanted, path]);
  return useMemo(() => ({ usage: Object.fromEntries((value?.items ?? []).map((each) => [each.metadata.uid, { ...each.usage, host: each.host }])), missing: value?.missing ?? null }), [value]);
}

/** What the sandboxes of each host use together, by its name. */
function byHost(usage) {
  const sums = {};
  for (const { host, cpuPercent, memoryUsageBytes } of Object.values(usage)) {
    sums[host] ??= { cpuPercent: 0, memoryUsageBytes: 0 };
    sums[host].cpuPercent += cpuPercent;
    sums[host].memoryUsageBytes += memoryUsageBytes;
  }
  return sums;
}

/** Columns of what is used against its limits; `keyOf` gives the row's key in `usage`. */
function usageColumns(usage, columns, keyOf) {
  const shown = (row, name) => row.cells[columns.findIndex((each) => each.name === name)];
  const limit = (row, name) => String(shown(row, name)).split('/').pop(); // a host shows what is reserved of it before
  const of = (row) => usage[keyOf(row)];
  return [
    { key: 'cpu', title: 'CPU', value: (row) => of(row)?.cpuPercent ?? -1, cell: (row) => {
      const most = quantity(limit(row, 'CPU'));
      return of(row) && most ? html`<${Meter} label="CPU" used=${of(row).cpuPercent / 100} most=${most} text="${(of(row).cpuPercent / 100).toFixed(2)} / ${limit(row, 'CPU')}"/>` : html`<span class="quiet">${visibleText(shown(row, 'CPU'))}</span>`;
    } },
    { key: 'memory', title: 'Memory', value: (row) => of(row)?.memoryUsageBytes ?? -1, cell: (row) => {
      const most = quantity(limit(row, 'MEMORY'));
      return of(row) && most ? html`<${Meter} label="Memory" used=${of(row).memoryUsageBytes} most=${most} text="${bytes(of(row).memoryUsageBytes)} / ${limit(row, 'MEMORY')}"/>` : html`<span class="quiet">${visibleText(shown(row, 'MEMORY'))}</span>`;
    } },
  ];
}
