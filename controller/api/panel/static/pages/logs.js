// The log of a sandbox: followed, searched, as text whatever is in it.
import { bytes, html, download, useEffect, useLayoutEffect, useMemo, useRef, useState, visibleText } from '../lib.js';
import { ApiError, ended, recovered, sandboxPath, send, sleep } from '../api.js';
import { Button, ErrorNote } from '../ui.js';
import { SearchBox } from './list.js';

const KEPT = 20_000; // lines in memory
const DRAWN = 2000; // lines in the page
const LONGEST = 4000; // characters of a line that are shown
const ESCAPES = /\u001b(\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(\u0007|\u001b\\)|[@-Z\\-_])/g;

export default function Logs({ namespace, name }) {
  const [follow, setFollow] = useState(true);
  const [source, setSource] = useState('current');
  const [stamps, setStamps] = useState(false);
  const [text, setText] = useState('');
  const [error, setError] = useState(null);
  const [state, setState] = useState({ lines: [], note: '' });
  const holder = useRef();
  const stuck = useRef(true);
  useEffect(() => {
    const stop = new AbortController();
    let lines = [];
    let rest = '';
    let due = 0;
    let note = '';
    setState({ lines: [], note: '' });
    setError(null);
    const draw = () => { due = 0; setState({ lines: rest ? [...lines, rest] : [...lines], note }); };
    const add = (chunk) => {
      const parts = (rest + chunk).split('\n');
      rest = parts.pop();
      if (rest.length > 2 * LONGEST) rest = rest.slice(0, 2 * LONGEST); // one endless line
      lines.push(...parts);
      if (lines.length > KEPT) lines = lines.slice(-KEPT);
      due ||= setTimeout(draw, 80);
    };
    const query = { tailLines: '2000' };
    if (source === 'previous') query.previous = 'true';
    else if (source === 'egress') query.egress = 'true';
    else { if (follow) query.follow = 'true'; if (stamps) query.timestamps = 'true'; }
    if (source === 'previous' && stamps) query.timestamps = 'true';
    (async () => {
      while (!stop.signal.aborted) {
        try {
          const answer = await send(sandboxPath(namespace, name, 'logs'), { query, signal: stop.signal });
          note = answer.headers.get('warning')?.replace(/^299 - "?|"$/g, '') ?? '';
          lines = []; rest = '';
          setError(null);
          const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
          for (;;) {
            const { done, value } = await reader.read();
            if (done) break;
            add(value);
          }
          draw();
          if (!query.follow) return;
          await sleep(3000); // its container ended: the next run's log follows
        } catch (failed) {
          if (stop.signal.aborted || ended(failed)) return;
          if (!(failed instanceof ApiError) || failed.status === 0 || failed.status === 502) await recovered();
          else setError(failed);
          if (!query.follow) return;
          await sleep(1500);
        }
      }
    })();
    return () => { stop.abort(); clearTimeout(due); };
  }, [namespace, name, follow, source, stamps]);
  const word = text.toLowerCase();
  const found = useMemo(() => (word ? state.lines.filter((each) => each.toLowerCase().includes(word)) : state.lines), [state, word]);
  const drawn = found.slice(-DRAWN);
  useLayoutEffect(() => { if (stuck.current && holder.current) holder.current.scrollTop = holder.current.scrollHeight; }, [drawn]);
  const save = () => download(new Blob([state.lines.join('\n')], { type: 'text/plain' }), `${name}.log`);
  return html`<div class="tools"><${SearchBox} label="Search the log" value=${text} onInput=${setText}/>
    <select aria-label="Log" value=${source} onChange=${(event) => setSource(event.target.value)}><option value="current">This run</option><option value="previous">Previous run</option><option value="egress">Network connections</option></select>
    <label class="check"><input type="checkbox" checked=${follow} disabled=${source !== 'current'} onChange=${(event) => setFollow(event.target.checked)}/>Follow</label>
    <label class="check"><input type="checkbox" checked=${stamps} disabled=${source === 'egress'} onChange=${(event) => setStamps(event.target.checked)}/>Times</label>
    <${Button} icon="down" onClick=${save}>Save</${Button}><span class="quiet" role="status">${word ? `${found.length} of ${state.lines.length} lines` : `${state.lines.length} lines`}${found.length > DRAWN ? `, the last ${DRAWN} shown` : ''}</span></div>
    <${ErrorNote} error=${error}/>${state.note ? html`<div class="note">${visibleText(state.note)}</div>` : ''}
    <div class="log" ref=${holder} tabindex="0" role="log" aria-label="Log of ${visibleText(name)}" aria-live="off" onScroll=${(event) => { const it = event.target; stuck.current = it.scrollHeight - it.scrollTop - it.clientHeight < 40; }}>
      ${drawn.length ? drawn.map((each, at) => html`<${Line} key=${found.length - drawn.length + at} text=${each} word=${word}/>`) : html`<div class="l">${error ? '' : 'No lines yet.'}</div>`}</div>`;
}

function Line({ text, word }) {
  const whole = visibleText(text.replace(/\r$/, '').replace(ESCAPES, ''));
  const cut = whole.length > LONGEST;
  const shown = cut ? whole.slice(0, LONGEST) : whole;
  const rest = cut ? html`<span class="cut"> … cut: the line has ${bytes(text.length)}</span>` : '';
  if (!word) return html`<div class="l">${shown || ' '}${rest}</div>`;
  const pieces = [];
  let from = 0;
  const low = shown.toLowerCase();
  for (let at = low.indexOf(word); at >= 0 && pieces.length < 200; at = low.indexOf(word, from)) {
    pieces.push(shown.slice(from, at), html`<mark>${shown.slice(at, at + word.length)}</mark>`);
    from = at + word.length;
  }
  return html`<div class="l">${pieces}${shown.slice(from)}${rest}</div>`;
}
