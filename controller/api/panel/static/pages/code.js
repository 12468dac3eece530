// Code contexts of a sandbox, like a notebook: cells, charts, tables, interrupt. What comes from the sandbox is text, a
// picture, a table that is drawn here, or markup in a frame without scripts and without the network.
import { html, useEffect, useRef, useState, visibleText } from '../lib.js';
import { call, ended, lines, sandboxPath, send, useCan, usePolled } from '../api.js';
import { Button, ErrorNote, fail } from '../ui.js';

const LANGUAGES = ['python', 'javascript', 'bash'];
const TABLE = 'application/vnd.paddock.data+json';
const ROWS = 200; // of a table that are drawn
const KEPT = 200_000; // characters of output of one cell
// The panel's own policy holds in a frame, too; this one is for a frame by itself.
const POLICY = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'; img-src data:">';
let number = 0;
const fresh = (code = '') => ({ id: ++number, code, parts: [], state: 'new', count: null });

export default function Code({ namespace, name }) {
  const can = useCan('use', 'Sandbox', namespace, name, 'contexts/execute');
  const [context, setContext] = useState('python');
  const [cells, setCells] = useState([fresh()]);
  const [busy, setBusy] = useState(false);
  const running = useRef(null);
  const path = (...parts) => sandboxPath(namespace, name, ['contexts', ...parts.map(encodeURIComponent)].join('/'));
  const { value, error } = usePolled((signal) => call(path(), { signal }), 5000, [namespace, name], true);
  const contexts = value?.items ?? [];
  const facts = contexts.find((each) => each.name === context);
  useEffect(() => () => running.current?.abort(), []);
  const change = (id, part) => setCells((old) => old.map((each) => (each.id === id ? { ...each, ...(typeof part === 'function' ? part(each) : part) } : each)));

  const run = async (cell) => {
    if (busy || !cell.code.trim()) return;
    const stop = running.current = new AbortController();
    setBusy(true);
    change(cell.id, { parts: [], state: 'running', count: null });
    try {
      const byLanguage = LANGUAGES.includes(context);
      const body = { code: cell.code, ...(byLanguage ? { language: context } : {}) };
      const answer = await send(byLanguage ? path('execute') : path(context, 'execute'), { method: 'POST', body, signal: stop.signal });
      for await (const event of lines(answer)) change(cell.id, (old) => taken(old, event));
    } catch (failed) {
      if (!ended(failed)) change(cell.id, (old) => ({ parts: [...old.parts, { kind: 'error', text: failed.message }] }));
    }
    change(cell.id, (old) => ({ state: old.state === 'running' ? 'ended' : old.state }));
    setBusy(false);
    setCells((old) => (old[old.length - 1].id === cell.id ? [...old, fresh()] : old));
  };
  const ask = (verb) => call(path(context, verb), { method: 'POST', body: {} }).catch((failed) => { if (!ended(failed)) fail(failed); });
  return html`<div class="row gap-below"><label class="row">Context <select value=${context} disabled=${busy} onChange=${(event) => setContext(event.target.value)}>
      ${[...new Set([...LANGUAGES, ...contexts.map((each) => each.name)])].map((each) => html`<option key=${each} value=${each}>${visibleText(each)}</option>`)}</select></label>
    <${Button} allowed=${can} disabled=${!busy} onClick=${() => ask('interrupt')}>Interrupt</${Button}>
    <${Button} allowed=${can} disabled=${busy || !facts} onClick=${() => ask('restart')}>Restart</${Button}>
    <span class="quiet">${facts ? `${facts.engine || facts.language} ${facts.version}, ${facts.state}, ${Math.round(facts.memoryBytes / 1048576)} MiB${facts.processes ? `, ${facts.processes} processes that it started` : ''}` : 'begins with its first cell'}</span></div>
    <${ErrorNote} error=${error}/>
    ${cells.map((cell) => html`<${Cell} key=${cell.id} cell=${cell} can=${can} busy=${busy} onCode=${(code) => change(cell.id, { code })} onRun=${() => run(cell)}/>`)}`;
}

function taken(cell, event) {
  const parts = event.type === 'clear' && !event.wait ? [] : cell.parts;
  const last = parts[parts.length - 1];
  if (event.type === 'stdout' || event.type === 'stderr') {
    if (last?.kind === event.type) return { parts: [...parts.slice(0, -1), { ...last, text: (last.text + event.text).slice(-KEPT) }] };
    return { parts: [...parts, { kind: event.type, text: event.text }] };
  }
  if (event.type === 'result') {
    const at = event.update ? parts.findIndex((each) => each.display && each.display === event.display) : -1;
    const part = { kind: 'result', data: event.data, display: event.display };
    return { parts: at < 0 ? [...parts, part] : parts.map((each, index) => (index === at ? part : each)) };
  }
  if (event.type === 'error') return { parts: [...parts, { kind: 'error', text: event.traceback || `${event.name}: ${event.value}` }] };
  if (event.type === 'notice') return { parts: [...parts, { kind: 'notice', text: event.text }] };
  if (event.type === 'started' && event.lost) return { parts: [...parts, { kind: 'notice', text: `a new interpreter: ${event.lost}` }] };
  if (event.type === 'failed') return { parts: [...parts, { kind: 'error', text: event.message }] };
  if (event.type === 'done') return { parts, state: event.status, count: event.count };
  return { parts };
}

function Cell({ cell, can, busy, onCode, onRun }) {
  const key = (event) => { if (event.key === 'Enter' && (event.shiftKey || event.ctrlKey)) { event.preventDefault(); onRun(); } };
  const rows = Math.min(24, Math.max(3, cell.code.split('\n').length));
  return html`<section class="cell" aria-label="Cell"><div class="row"><textarea class="code cell-code" rows=${rows} spellcheck="false" aria-label="Code" value=${cell.code} onInput=${(event) => onCode(event.target.value)} onKeyDown=${key}/>
      <${Button} icon="play" tone="primary" allowed=${can} disabled=${busy} title="Shift+Enter" onClick=${onRun}>Run</${Button}></div>
    <div class="cell-out" aria-live="polite">${cell.parts.map((part, index) => html`<${Part} key=${index} part=${part}/>`)}
      ${cell.state === 'running' ? html`<p class="quiet">running…</p>` : cell.count !== null ? html`<p class="quiet">[${cell.count}] ${cell.state}</p>` : ''}</div></section>`;
}

function Part({ part }) {
  if (part.kind !== 'result') return html`<pre class="block ${part.kind === 'error' || part.kind === 'stderr' ? 'wrong' : ''}" tabindex="0">${visibleText(part.text)}</pre>`;
  const { data } = part;
  for (const mime of ['image/png', 'image/jpeg']) {
    if (/^[A-Za-z0-9+/=\s]+$/.test(data[mime] ?? '')) return html`<img class="chart-picture" src="data:${mime};base64,${data[mime].replace(/\s/g, '')}" alt=${visibleText(data['text/plain'] ?? 'a picture')}/>`;
  }
  if (isTable(data[TABLE])) return html`<${Table} columns=${data[TABLE]}/>`;
  const markup = data['text/html'] ?? data['image/svg+xml'];
  if (typeof markup === 'string') return html`<iframe class="foreign" sandbox="" referrerpolicy="no-referrer" title="HTML of the sandbox" srcdoc=${POLICY + markup}></iframe>`;
  return html`<pre class="block" tabindex="0">${visibleText(data['text/plain'] ?? Object.keys(data).join(', '))}</pre>`;
}

const isTable = (columns) => Boolean(columns) && typeof columns === 'object' && Object.values(columns).every(Array.isArray);

function Table({ columns }) {
  const names = Object.keys(columns);
  const count = Math.max(0, ...names.map((each) => columns[each].length));
  const shown = Array.from({ length: Math.min(count, ROWS) }, (_, row) => row);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table"><table class="data"><thead><tr><th class="num"></th>${names.map((each) => html`<th key=${each}>${visibleText(each)}</th>`)}</tr></thead><tbody>
    ${shown.map((row) => html`<tr key=${row}><td class="num quiet">${row}</td>${names.map((each) => html`<td key=${each}>${visibleText(String(columns[each][row] ?? ''))}</td>`)}</tr>`)}</tbody></table>${count > ROWS ? html`<p class="quiet">${count - ROWS} more rows</p>` : ''}</div>`;
}
