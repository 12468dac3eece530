// Images of all hosts that the caller may use; and pulls, with their progress.
import { bytes, html, useRef, useState, visibleText } from '../lib.js';
import { call, ended, lines, send, usePolled } from '../api.js';
import { Age, Button, DataTable, ErrorNote, Icon } from '../ui.js';
import { Missing, SearchBox } from './list.js';

const short = (id) => String(id).replace(/^sha256:/, '').slice(0, 12);

export default function Images() {
  const [run, setRun] = useState(0);
  const { value, error } = usePolled((signal) => call('images', { signal }), 15_000, [run], true);
  const [text, setText] = useState('');
  const items = (value?.items ?? []).filter((each) => text.toLowerCase().split(/\s+/).every((word) => `${each.names.join(' ')} ${each.id} ${each.host ?? ''}`.toLowerCase().includes(word)));
  const missing = value?.missing;  // left out where there is one host
  return html`<div class="head"><div class="title"><h1 tabindex="-1">Images</h1><span class="badge" aria-live="polite">${value ? value.items.length : '…'}</span></div></div>
    <div class="tools"><${SearchBox} label="Search" value=${text} onInput=${setText}/><span class="quiet grow">${missing ? 'Those of all hosts that your grants allow. Pulls go to the host of this daemon.' : 'Those of this host that your grants allow.'}</span></div><${Pull} onDone=${() => setRun(run + 1)}/><${ErrorNote} error=${error}/><${Missing} hosts=${missing} what="images"/>
    ${!value ? (error ? '' : html`<p class="quiet">Loading…</p>`) : html`<${DataTable} label="Images" rows=${items} rowKey=${(row) => `${row.host ?? ''}/${row.id}`} empty=${html`<${Icon} name="disc" size=${36}/><b>No images</b><span>Pull one, or run <code>images/build.sh</code>.</span>`} columns=${[
      { key: 'name', title: 'Name', value: (row) => row.names[0] ?? '', cell: (row) => html`<b>${visibleText(row.names[0] ?? '(none)')}</b>${row.names.length > 1 ? html` <span class="quiet" title=${visibleText(row.names.join(', '))}>and ${row.names.length - 1} more</span>` : ''}` },
      ...(missing ? [{ key: 'host', title: 'Host', value: (row) => row.host, cell: (row) => visibleText(row.host) }] : []),
      { key: 'id', title: 'ID', hide: 'narrow-hide', value: (row) => row.id, cell: (row) => html`<code title=${row.id}>${short(row.id)}</code>` },
      { key: 'size', title: 'Size', num: true, value: (row) => row.sizeBytes, cell: (row) => bytes(row.sizeBytes) },
      { key: 'age', title: 'Created', num: true, value: (row) => -Date.parse(row.createdTime), cell: (row) => html`<${Age} time=${row.createdTime}/>` },
    ]}/>`}`;
}

function Pull({ onDone }) {
  const [image, setImage] = useState('');
  const [step, setStep] = useState(null);
  const [error, setError] = useState(null);
  const stop = useRef(null);
  const pull = async (event) => {
    event.preventDefault();
    setError(null);
    setStep({ text: 'asking the registry' });
    stop.current = new AbortController();
    try {
      const answer = await send('images/pull', { method: 'POST', query: { image }, signal: stop.current.signal });
      for await (const each of lines(answer)) {
        if (each.error) throw each.error;
        setStep(each);
      }
      setImage('');
      onDone();
    } catch (failed) { if (!ended(failed)) setError(failed); }
    setStep(null);
  };
  const share = step?.totalBytes ? ` ${bytes(step.currentBytes)} of ${bytes(step.totalBytes)}` : '';
  return html`<form class="tools" onSubmit=${pull}><label class="visually-hidden" for="pull">Image to pull</label><input id="pull" class="grow" placeholder="Image to pull, such as docker.io/library/alpine:3.20" value=${image} onInput=${(event) => setImage(event.target.value)} required/>
    ${step ? html`<${Button} onClick=${() => stop.current.abort()}>Cancel</${Button}>` : html`<button type="submit"><${Icon} name="down"/>Pull</button>`}<span class="quiet" role="status">${step ? visibleText(`${step.layer ? `${step.layer.slice(0, 12)} ` : ''}${step.text ?? ''}${share}`) : ''}</span></form><${ErrorNote} error=${error}/>`;
}
