// Images of all hosts that the caller may use: pulls and builds, with their progress, and deletion.
import { bytes, html, useRef, useState, visibleText } from '../lib.js';
import { call, ended, lines, send, useCan, usePolled } from '../api.js';
import { Age, Button, Confirm, DataTable, Dialog, ErrorNote, Field, Icon, toast } from '../ui.js';
import { Missing, SearchBox } from './list.js';

const short = (id) => String(id).replace(/^sha256:/, '').slice(0, 12);
const DOCKERFILE = 'FROM paddock/python:1\nCOPY . /app\n';

export default function Images() {
  const [run, setRun] = useState(0);
  const { value, error } = usePolled((signal) => call('images', { signal }), 15_000, [run], true);
  const [text, setText] = useState('');
  const [building, setBuilding] = useState(false);
  const [leaving, setLeaving] = useState(null);
  const can = useCan('create', 'HostQuota'); // builds and deletions are for admins of everything, as the host's own kinds
  const items = (value?.items ?? []).filter((each) => text.toLowerCase().split(/\s+/).every((word) => `${each.names.join(' ')} ${each.id} ${each.host ?? ''}`.toLowerCase().includes(word)));
  const missing = value?.missing;  // left out where there is one host
  const again = () => setRun(run + 1);
  const remove = async () => {
    for (const image of leaving.names) await call('images/delete', { method: 'POST', query: { image, ...(leaving.host ? { host: leaving.host } : {}) } });
    toast(`image ${leaving.names[0]}: deleted`);
    again();
  };
  return html`<div class="head"><div class="title"><h1 tabindex="-1">Images</h1><span class="badge" aria-live="polite">${value ? value.items.length : '…'}</span></div><${Button} icon="layers" tone="primary" allowed=${can} onClick=${() => setBuilding(true)}>Build an image</${Button}></div>
    <div class="tools"><${SearchBox} label="Search" value=${text} onInput=${setText}/><span class="quiet grow">${missing ? 'Those of all hosts that your grants allow. Pulls and builds go to the host of this daemon.' : 'Those of this host that your grants allow.'}</span></div><${Pull} onDone=${again}/><${ErrorNote} error=${error}/><${Missing} hosts=${missing} what="images"/>
    ${!value ? (error ? '' : html`<p class="quiet">Loading…</p>`) : html`<${DataTable} label="Images" rows=${items} rowKey=${(row) => `${row.host ?? ''}/${row.id}`} empty=${html`<${Icon} name="disc" size=${36}/><b>No images</b><span>Pull one, or run <code>images/build.sh</code>.</span>`} columns=${[
      { key: 'name', title: 'Name', value: (row) => row.names[0] ?? '', cell: (row) => html`<b>${visibleText(row.names[0] ?? '(none)')}</b>${row.names.length > 1 ? html` <span class="quiet" title=${visibleText(row.names.join(', '))}>and ${row.names.length - 1} more</span>` : ''}` },
      ...(missing ? [{ key: 'host', title: 'Host', value: (row) => row.host, cell: (row) => visibleText(row.host) }] : []),
      { key: 'id', title: 'ID', hide: 'narrow-hide', value: (row) => row.id, cell: (row) => html`<code title=${row.id}>${short(row.id)}</code>` },
      { key: 'size', title: 'Size', num: true, value: (row) => row.sizeBytes, cell: (row) => bytes(row.sizeBytes) },
      { key: 'age', title: 'Created', num: true, value: (row) => -Date.parse(row.createdTime), cell: (row) => html`<${Age} time=${row.createdTime}/>` },
      { key: 'delete', title: html`<span class="visually-hidden">Actions</span>`, num: true, cell: (row) => html`<span class="acts"><${Button} icon="trash" tone="ghost" allowed=${can} title="Delete" aria-label="Delete ${visibleText(row.names[0])}" onClick=${() => setLeaving(row)}/></span>` },
    ]}/>`}
    ${building ? html`<${Build} onClose=${() => setBuilding(false)} onDone=${again}/>` : ''}
    ${leaving ? html`<${Confirm} title=${`Delete ${visibleText(leaving.names[0])}`} action="Delete" onClose=${() => setLeaving(null)} onDo=${remove}><p>${leaving.names.length > 1 ? `All of its names go: ${visibleText(leaving.names.join(', '))}. ` : ''}What names it in a template or a sandbox needs it again for a new container: it is pulled then, or must be built anew. One that a container uses stays.</p></${Confirm}>` : ''}`;
}

/** Work that answers with lines of progress: {step, error, run(path, options), stop}. `run` returns true at its end. */
function useProgress() {
  const [step, setStep] = useState(null);
  const [error, setError] = useState(null);
  const stop = useRef(null);
  const run = async (path, options, onStep) => {
    setError(null);
    setStep({ text: options.first });
    stop.current = new AbortController();
    let finished = false;
    try {
      const answer = await send(path, { method: 'POST', ...options, signal: stop.current.signal });
      for await (const line of lines(answer)) {
        if (line.error) throw { ...line.error, causes: line.error.details?.causes };
        setStep(line);
        onStep?.(line);
      }
      finished = true;
    } catch (failed) { if (!ended(failed)) setError(failed); }
    setStep(null);
    return finished;
  };
  return { step, error, run, stop: () => stop.current?.abort() };
}

function Pull({ onDone }) {
  const [image, setImage] = useState('');
  const { step, error, run, stop } = useProgress();
  const pull = async (event) => {
    event.preventDefault();
    if (await run('images/pull', { query: { image }, first: 'asking the registry' })) { setImage(''); onDone(); }
  };
  const share = step?.totalBytes ? ` ${bytes(step.currentBytes)} of ${bytes(step.totalBytes)}` : '';
  return html`<form class="tools" onSubmit=${pull}><label class="visually-hidden" for="pull">Image to pull</label><input id="pull" class="grow" placeholder="Image to pull, such as docker.io/library/alpine:3.20" value=${image} onInput=${(event) => setImage(event.target.value)} required/>
    ${step ? html`<${Button} onClick=${stop}>Cancel</${Button}>` : html`<button type="submit"><${Icon} name="down"/>Pull</button>`}<span class="quiet" role="status">${step ? visibleText(`${step.layer ? `${step.layer.slice(0, 12)} ` : ''}${step.text ?? ''}${share}`) : ''}</span></form><${ErrorNote} error=${error}/>`;
}

const BLOCK = 512;
const padded = (size) => Math.ceil(size / BLOCK) * BLOCK;

/** The head of a file in a tar archive (ustar). Throws for a name that does not fit. */
function tarHead(name, size) {
  const encoder = new TextEncoder();
  const head = new Uint8Array(BLOCK);
  const put = (text, at, most) => { const data = encoder.encode(text); if (data.length > most) throw new Error(`${name}: the name is longer than ${most} bytes`); head.set(data, at); };
  const octal = (number, digits) => `${number.toString(8).padStart(digits, '0')}\0`;
  put(name, 0, 100);
  for (const [text, at] of [[octal(0o644, 7), 100], [octal(0, 7), 108], [octal(0, 7), 116], [octal(size, 11), 124], [octal(0, 11), 136], ['        ', 148], ['0', 156], ['ustar\u000000', 257]]) put(text, at, 12);
  put(`${head.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, '0')}\0 `, 148, 8);
  return head;
}

/** The context of a build as a tar archive: the Dockerfile, and the files beside it. */
function contextOf(dockerfile, files) {
  const parts = [[new Blob([dockerfile]), 'Dockerfile'], ...files.map((file) => [file, file.webkitRelativePath || file.name])];
  return new Blob([...parts.flatMap(([data, name]) => [tarHead(name, data.size), data, new Uint8Array(padded(data.size) - data.size)]), new Uint8Array(2 * BLOCK)]);
}

function Build({ onClose, onDone }) {
  const [tag, setTag] = useState('');
  const [dockerfile, setDockerfile] = useState(DOCKERFILE);
  const [files, setFiles] = useState([]);
  const [log, setLog] = useState([]);
  const [problem, setProblem] = useState(null);
  const { step, error, run, stop } = useProgress();
  const build = async () => {
    setLog([]);
    setProblem(null);
    let body;
    try { body = contextOf(dockerfile, files); } catch (failed) { setProblem(failed); return; }
    const finished = await run('images/build', { query: { tag }, body, type: 'application/octet-stream', first: 'sending its files' }, (line) => { if (line.text) setLog((old) => [...old, line.text].slice(-500)); });
    if (finished) { toast(`image ${tag}: built`); onDone(); onClose(); }
  };
  const close = () => { stop(); onClose(); };
  return html`<${Dialog} title="Build an image" wide=${true} onClose=${close} footer=${html`<${Button} onClick=${close}>${step ? 'Cancel' : 'Close'}</${Button}><${Button} tone="primary" disabled=${Boolean(step) || !tag || !dockerfile.trim()} onClick=${build}>Build</${Button}>`}>
    <div class="form"><${Field} label="Name and tag" help="Commands (RUN) have no network, and need the setting image_build = run. Bases are images that the operator allows.">${(props) => html`<input ...${props} placeholder="team/tool:1" spellcheck="false" value=${tag} onInput=${(event) => setTag(event.target.value)}/>`}</${Field}>
    <${Field} label="Dockerfile">${(props) => html`<textarea ...${props} class="mono" rows="9" spellcheck="false" value=${dockerfile} onInput=${(event) => setDockerfile(event.target.value)}/>`}</${Field}>
    <${Field} label="Files beside it" help="What COPY takes.">${(props) => html`<input ...${props} type="file" multiple onChange=${(event) => setFiles([...event.target.files])}/>`}</${Field}>
    <${ErrorNote} error=${problem ?? error}/><p class="quiet" role="status">${step ? visibleText(step.text ?? '') : ''}</p>${log.length ? html`<pre class="block" tabindex="0">${log.map(visibleText).join('\n')}</pre>` : ''}</div></${Dialog}>`;
}
