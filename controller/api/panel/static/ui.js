// Building blocks: icons, status, tables, dialogs, notes. Text is always text: nothing here reads HTML.
import { age, html, observable, useEffect, useLayoutEffect, useMemo, useRef, useState, useTick, useValue, visibleText } from './lib.js';
import { link } from './api.js';

const PATHS = {
  ok: 'M3.5 8.5l3 3 6-7', bad: 'M4 4l8 8M12 4l-8 8', warn: 'M8 3.2v6M8 12v.6', wait: 'M8 4v4l2.6 1.6', idle: 'M6 4.5v7M10 4.5v7', unknown: 'M6 6.2a2 2 0 1 1 2.6 1.9c-.5.2-.6.5-.6 1.1M8 11.8v.4',
  box: 'M2.5 5L8 2.2 13.5 5v6L8 13.8 2.5 11zM2.5 5L8 7.8 13.5 5M8 7.8v6', layers: 'M8 2.5l6 3-6 3-6-3zM2 8.5l6 3 6-3M2 11l6 3 6-3', file: 'M4 2h5l3 3v9H4zM9 2v3h3', folder: 'M2 4h4l1.5 2H14v7H2z', gauge: 'M2.5 11.5a5.5 5.5 0 1 1 11 0M8 11l2.5-3.5', disk: 'M2.5 4.5c0-1.1 2.5-2 5.5-2s5.5.9 5.5 2v7c0 1.1-2.5 2-5.5 2s-5.5-.9-5.5-2zM2.5 4.5c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2', shield: 'M8 2l5 2v4c0 3.2-2 5.2-5 6.2C5 13.2 3 11.2 3 8V4z', server: 'M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.1M5 11h.1', bell: 'M4 11V7a4 4 0 0 1 8 0v4l1 1.5H3zM7 14h2', list: 'M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.1M2.5 8h.1M2.5 12h.1', key: 'M9.5 6.5a3 3 0 1 0-2.4 2.9L8.5 8 10 9.5 11.5 8 13 9.5 14 8.3 9.5 6.6', plus: 'M8 3v10M3 8h10', play: 'M5 3.5l7 4.5-7 4.5z', pause: 'M5.5 3.5v9M10.5 3.5v9', trash: 'M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.5 9h6l.5-9', edit: 'M3 13l.6-2.8L11 2.8l2.2 2.2-7.4 7.4z', search: 'M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3L14 14', menu: 'M2 4h12M2 8h12M2 12h12', open: 'M9 2.5h4.5V7M13.5 2.5L8 8M6.5 3.5h-4v10h10v-4', cube: 'M2.5 5L8 2.2 13.5 5v6L8 13.8 2.5 11z', down: 'M8 2.5v8M4.5 7.5L8 11l3.5-3.5M3 13.5h10', up: 'M8 11V3M4.5 6L8 2.5 11.5 6M3 13.5h10', sun: 'M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7', lock: 'M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5', again: 'M13 8a5 5 0 1 1-1.6-3.7M13 2.5v2.8h-2.8', clock: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3l2 1.5', plug: 'M5.5 2v3M10.5 2v3M3.5 5h9v2.5a4.5 4.5 0 0 1-9 0zM8 12v2', disc: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 6.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3z', chip: 'M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14', question: 'M6 6.2a2 2 0 1 1 2.6 1.9c-.5.2-.6.5-.6 1.1M8 11.8v.4',
};
export function Icon({ name, size = 16 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 16 16" aria-hidden="true"><path d=${PATHS[name] ?? PATHS.unknown}/></svg>`;
}

const TONES = {
  ok: ['Running', 'Ready', 'True', 'Active', 'active', 'Bound', 'Normal', 'AsAsked', 'allowed', 'ok', 'InUse', 'Answering', 'Succeeded', 'Serving', 'Healthy', 'Reachable', 'Loaded', 'Accepted', 'Done', 'Captured'],
  idle: ['Suspended', 'Paused', 'Hibernated', 'Completed', 'Stopped', 'Idle', 'IdleReaped', 'Unused', 'expired', 'Exited', 'Absent', 'Available', 'Disabled', 'Cancelled', 'Skipped'],
  wait: ['Creating', 'Pending', 'Starting', 'Pulling', 'Waiting', 'Terminating', 'Stopping', 'Resuming', 'Restarting', 'QuotaExceeded', 'NotReady', 'Acting', 'Created', 'NotSeenYet', 'Probing', 'StartingUp', 'Filling', 'Replacing', 'Queued', 'Loading', 'Progressing', 'Scheduled'],
  warn: ['Warning', 'ToolsChanged', 'Degraded'],
  unknown: ['Unknown', '-', '–', ''],
};
const TONE_OF = new Map(Object.entries(TONES).flatMap(([tone, words]) => words.map((word) => [word, tone])));
const BAD = /Error|Unreachable|Expired|TimedOut|NotFound|Failed|Failing|Killed|Refused|Lost|Invalid|BackOff|NotReady|False|denied|revoked|problem|Exceeded|Broken|Crash|Dead/;
/** `other` is the tone of a word that nobody knows here. */
export function toneOf(word, other = 'warn') {
  const text = String(word ?? '');
  return TONE_OF.get(text) ?? (BAD.test(text) ? 'bad' : other);
}

/** A status word with colour and icon. Nothing is shown as good while the daemon does not answer. */
export function Status({ word, tone, title }) {
  const away = useValue(link) !== 'live';
  const kind = away ? 'unknown' : tone ?? toneOf(word);
  return html`<span class="status ${kind}" title=${away ? `last known: ${word}` : title}><${Icon} name=${kind} size=${14}/><span>${away ? 'Unknown' : visibleText(word) || '–'}</span></span>`;
}

export function Age({ time }) {
  useTick(5000);
  return html`<time datetime=${time} title=${time ? new Date(time).toLocaleString() : ''}>${age(time)}</time>`;
}

/** A condition: good or bad depends on its type. */
const INVERTED = /Pressure$|^Outdated$|^Suspended$|^Finished$|^Degraded$/;
export function conditionTone({ type, status, reason }) {
  if (status === 'Unknown') return 'unknown';
  const good = INVERTED.test(type) ? status === 'False' : status === 'True';
  if (good) return 'ok';
  if (type === 'Suspended' || type === 'Finished') return 'idle';
  if (type === 'Outdated' || reason === 'Soft') return 'warn';
  return toneOf(reason) === 'wait' ? 'wait' : 'bad';
}

const FIRST = ['bad', 'warn', 'wait'];
const rank = (each) => (FIRST.indexOf(conditionTone(each)) + 1 || 9);

/** Conditions, what needs somebody first. */
export function Conditions({ conditions: given }) {
  if (!given?.length) return html`<p class="quiet">None yet.</p>`;
  const conditions = [...given].sort((a, b) => rank(a) - rank(b));
  return html`<table class="plain stack"><thead><tr><th>Condition</th><th>Reason</th>${conditions.some((each) => each.lastTransitionTime) ? html`<th class="narrow-hide num">Since</th>` : ''}</tr></thead><tbody>
    ${conditions.map((each) => html`<tr key=${each.type}>
      <td><${Status} word=${INVERTED.test(each.type) ? `${each.type}: ${each.status === 'True' ? 'yes' : each.status === 'False' ? 'no' : '?'}` : each.type} tone=${conditionTone(each)} title="${each.type}: ${each.status}"/> <span class="visually-hidden">${each.status}</span></td>
      <td><b>${visibleText(each.reason)}</b>${each.message ? html`<div class="quiet wrap">${visibleText(each.message)}</div>` : ''}</td>
      ${each.lastTransitionTime ? html`<td class="narrow-hide num"><${Age} time=${each.lastTransitionTime}/></td>` : ''}</tr>`)}
  </tbody></table>`;
}

export function Facts({ facts }) {
  return html`<dl class="facts">${facts.filter(Boolean).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${typeof value === 'string' || typeof value === 'number' ? visibleText(value) : value}</dd></div>`)}</dl>`;
}

export function Card({ title, children, actions, wide }) {
  return html`<section class="card ${wide ? 'wide' : ''}" aria-label=${title}>
    <header><h2>${title}</h2>${actions ? html`<div class="row">${actions}</div>` : ''}</header>${children}</section>`;
}

/** A bar of used against hard, with the figures as text. */
export function Meter({ used, most, label, text }) {
  const share = most > 0 ? Math.min(1, used / most) : 0;
  const tone = share >= 0.95 ? 'bad' : share >= 0.8 ? 'warn' : 'ok';
  return html`<div class="meter ${tone}" role="meter" aria-label=${label} aria-valuenow=${Math.round(share * 100)} aria-valuemin="0" aria-valuemax="100" aria-valuetext=${text}>
    <svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" height="6"/><rect class="fill" width=${share * 100} height="6"/></svg><span class="num">${text}</span></div>`;
}

export function ErrorNote({ error }) {
  if (!error) return null;
  const { message = error, causes = [] } = error;
  return html`<div class="note bad" role="alert"><${Icon} name="warn"/><div><b>${visibleText(causes.length ? String(message).split('\n')[0] : message)}</b>
    ${causes.length ? html`<ul>${causes.map((each) => html`<li>${each.line ? `Line ${each.line}: ` : ''}<code>${visibleText(each.field || each.file || '')}</code> ${visibleText(each.message)}</li>`)}</ul>` : ''}</div></div>`;
}

export function Button({ icon, children, tone = '', allowed, title, disabled, ...rest }) {
  const refused = allowed && !allowed.allowed;
  return html`<button type="button" class=${tone} disabled=${Boolean(refused || disabled)} title=${refused ? allowed.reason || 'checking your permission' : title} ...${rest}>
    ${icon ? html`<${Icon} name=${icon}/>` : ''}${children ? html`<span>${children}</span>` : ''}</button>`;
}

export function Tabs({ tabs, current, base }) {
  return html`<nav class="tabs" aria-label="Sections">${tabs.map(([id, title]) => html`<a key=${id} href="${base}${id ? `/${id}` : ''}" aria-current=${current === id ? 'page' : undefined}>${title}</a>`)}</nav>`;
}

const toasts = observable([]);
export function toast(text, tone = 'ok') {
  const made = { text, tone, id: Math.random() };
  toasts.set([...toasts.get(), made]);
  setTimeout(() => toasts.set(toasts.get().filter((each) => each !== made)), tone === 'bad' ? 12_000 : 5000);
}
export const fail = (error) => { if (error?.name !== 'AbortError') toast(error.message ?? String(error), 'bad'); };
export function Toasts() {
  const shown = useValue(toasts);
  return html`<div class="toasts" role="status" aria-live="polite">${shown.map((each) => html`<div key=${each.id} class="toast ${each.tone}"><${Icon} name=${each.tone}/>${visibleText(each.text)}</div>`)}</div>`;
}

/** A modal dialog; Escape closes it, and the focus goes back to where it was. */
export function Dialog({ title, children, onClose, wide, footer }) {
  const dialog = useRef();
  useLayoutEffect(() => {
    const before = document.activeElement;
    const element = dialog.current;
    element.showModal();
    return () => { element.close(); before?.focus?.(); };
  }, []);
  return html`<dialog ref=${dialog} class=${wide ? 'wide' : ''} aria-label=${title} onCancel=${(event) => { event.preventDefault(); onClose(); }}>
    <header><h2>${title}</h2><${Button} icon="bad" tone="ghost" aria-label="Close" onClick=${onClose}/></header>
    <div class="body">${children}</div>${footer ? html`<footer>${footer}</footer>` : ''}</dialog>`;
}

export function Confirm({ title, children, action, tone = 'danger', onClose, onDo, confirm, disabled }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const [typed, setTyped] = useState('');
  const go = async () => {
    setBusy(true);
    setError(null);
    try { await onDo(); onClose(); } catch (problem) { if (problem?.name !== 'AbortError') setError(problem); setBusy(false); }
  };
  return html`<${Dialog} title=${title} onClose=${onClose} footer=${html`<${Button} onClick=${onClose}>Cancel</${Button}><${Button} tone=${tone} disabled=${busy || disabled || (confirm && typed !== confirm)} onClick=${go}>${action}</${Button}>`}>
    ${children}<${ErrorNote} error=${error}/>
    ${confirm ? html`<label class="field"><span>Type <b>${visibleText(confirm)}</b> to confirm</span><input value=${typed} onInput=${(event) => setTyped(event.target.value)}/></label>` : ''}
  </${Dialog}>`;
}

const ROW = 38;
const MOST_WRAPPED = 500;
const WINDOW = 150; // more rows than that: only those in view are in the page

/**
 * A sortable table. Columns: {key, title, value(row) for sorting, cell(row), num, hide}.
 * Of many rows only those in view are rendered. `wraps`: long texts take lines, and only the first rows are there.
 */
export function DataTable({ columns, rows, rowKey, href, label, empty, initialSort, wraps }) {
  const [sort, setSort] = useState(initialSort ?? { key: (columns.find((each) => each.value) ?? columns[0])?.key, down: false });
  const sorted = useMemo(() => {
    const column = columns.find((each) => each.key === sort.key) ?? columns[0];
    if (!column?.value) return rows;
    const order = [...rows].sort((a, b) => compare(column.value(a), column.value(b)));
    return sort.down ? order.reverse() : order;
  }, [rows, sort, columns]);
  const holder = useRef();
  const [view, setView] = useState([0, 60]);
  const windowed = !wraps && sorted.length > WINDOW;
  useEffect(() => {
    if (!windowed) return undefined;
    const measure = () => {
      const top = holder.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / ROW) - 20);
      setView([first, first + Math.ceil(innerHeight / ROW) + 40]);
    };
    measure();
    addEventListener('scroll', measure, { passive: true });
    addEventListener('resize', measure);
    return () => { removeEventListener('scroll', measure); removeEventListener('resize', measure); };
  }, [windowed]);
  if (!rows.length) return html`<div class="empty">${empty ?? 'Nothing here yet.'}</div>`;
  const [first, last] = windowed ? view : [0, wraps ? MOST_WRAPPED : sorted.length];
  const seen = sorted.slice(first, last);
  const after = wraps ? 0 : Math.max(0, sorted.length - first - seen.length);
  const span = columns.length;
  return html`<div class="scroll" ref=${holder} tabindex="0" role="region" aria-label=${label}><table class="data ${wraps ? 'wraps' : ''}" aria-rowcount=${sorted.length + 1}>
    <thead><tr>${columns.map((each) => html`<th key=${each.key} class="${each.num ? 'num' : ''} ${each.hide ?? ''}" aria-sort=${sort.key === each.key ? (sort.down ? 'descending' : 'ascending') : undefined}>
      ${each.value ? html`<button type="button" class="sort" onClick=${() => setSort({ key: each.key, down: sort.key === each.key ? !sort.down : false })}>${each.title}<span aria-hidden="true">${sort.key === each.key ? (sort.down ? ' ↓' : ' ↑') : ''}</span></button>` : each.title}</th>`)}</tr></thead>
    <tbody>
      ${first > 0 ? html`<${Spacer} key="above" rows=${first} span=${span}/>` : ''}
      ${seen.map((row, at) => html`<tr key=${rowKey(row)} aria-rowindex=${windowed ? first + at + 2 : undefined} class=${href ? 'link' : ''} onClick=${href ? (event) => { if (!event.target.closest('a, button, input') && !getSelection().toString()) location.hash = href(row).slice(1); } : undefined}>
        ${columns.map((each) => html`<td key=${each.key} class="${each.num ? 'num' : ''} ${each.hide ?? ''}">${each.cell(row)}</td>`)}</tr>`)}
      ${after > 0 ? html`<${Spacer} key="below" rows=${after} span=${span}/>` : ''}
    </tbody></table>${wraps && sorted.length > last ? html`<p class="quiet more">${sorted.length - last} more; search to see them.</p>` : ''}</div>`;
}

function Spacer({ rows, span }) {
  const cell = useRef();
  useLayoutEffect(() => { cell.current.style.height = `${rows * ROW}px`; }, [rows]);
  return html`<tr aria-hidden="true" class="spacer"><td ref=${cell} colspan=${span}></td></tr>`;
}

const collator = new Intl.Collator(undefined, { numeric: true });
function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return (Number.isNaN(a) ? -1 : a) - (Number.isNaN(b) ? -1 : b);
  return collator.compare(String(a ?? ''), String(b ?? ''));
}

/** A field of a form, with help and errors that a screen reader reads with it. */
let fields = 0;
export function Field({ label, help, error, badge, children, hidden }) {
  const id = useMemo(() => `field-${fields += 1}`, []);
  const note = help || error ? `${id}-note` : undefined;
  return html`<div class="field ${error ? 'invalid' : ''} ${hidden ?? ''}"><label for=${id}>${label}${badge ? html` <span class="badge ${badge}">${badge}</span>` : ''}</label>
    ${children({ id, 'aria-describedby': note, 'aria-invalid': error ? 'true' : undefined })}
    ${note ? html`<div class="help" id=${note}>${error ? html`<span class="wrong"><${Icon} name="warn" size=${13}/> ${visibleText(error)}</span>` : help}</div>` : ''}</div>`;
}
