// Files of a sandbox: browse, upload, download, edit.
import { bytes, download, html, useEffect, useRef, useState, visibleText } from '../lib.js';
import { call, ended, sandboxPath, send, upload, useCan, usePolled } from '../api.js';
import { Button, Confirm, DataTable, Dialog, ErrorNote, fail, Icon, toast } from '../ui.js';

const EDITABLE = 1 << 20;
const LIMIT = 5000;
const join = (folder, name) => (folder === '/' ? `/${name}` : `${folder}/${name}`);

export default function Files({ namespace, name, object }) {
  const [folder, setFolder] = useState(object.spec.template?.workingDir ?? object.spec.template?.workspace?.mountPath ?? '/workspace');
  const [version, setVersion] = useState(0);
  const [editing, setEditing] = useState(null);
  const [removing, setRemoving] = useState(null);
  const [sending, setSending] = useState([]);
  const [over, setOver] = useState(false);
  const input = useRef();
  const can = useCan('use', 'Sandbox', namespace, name, 'files');
  const path = sandboxPath(namespace, name, 'files');
  const { value, error } = usePolled((signal) => call(`${path}/list`, { signal, query: { path: folder, limit: String(LIMIT) } }), 0, [path, folder, version]);
  const again = () => setVersion((old) => old + 1);
  useEffect(() => { if (error && folder !== '/' && error.status === 404 && version === 0) setFolder('/'); }, [error]);

  const sendAll = async (files) => {
    for (const file of files) {
      const stop = new AbortController();
      const job = { name: file.name, share: 0, stop };
      setSending((old) => [...old, job]);
      try {
        await upload(path, { path: join(folder, file.name) }, file, (share) => setSending((old) => old.map((each) => (each.stop === stop ? { ...each, share } : each))), stop.signal);
        toast(`${file.name}: uploaded (${bytes(file.size)})`);
      } catch (failed) {
        if (ended(failed)) toast(`${file.name}: upload stopped; nothing was written`, 'warn'); else fail(failed);
      }
      setSending((old) => old.filter((each) => each.stop !== stop));
    }
    again();
  };
  const save = async (file) => {
    try {
      const target = join(folder, file.name);
      const answer = file.type === 'folder' ? await send(`${path}/archive`, { query: { path: target, top: file.name } }) : await send(path, { query: { path: target } });
      download(await answer.blob(), file.type === 'folder' ? `${file.name}.tar` : file.name);
    } catch (failed) { fail(failed); }
  };
  const open = async (file) => {
    if (file.size > EDITABLE) { toast(`${file.name} has ${bytes(file.size)}; download it to read it`, 'warn'); return; }
    try {
      const data = new Uint8Array(await (await send(path, { query: { path: join(folder, file.name) } })).arrayBuffer());
      let text = null;
      try { text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data); } catch { /* not text */ }
      if (text === null || text.includes('\u0000')) toast(`${file.name} is not text; download it to read it`, 'warn');
      else setEditing({ path: join(folder, file.name), text, mode: file.mode });
    } catch (failed) { fail(failed); }
  };
  const make = async (kind) => {
    const given = kind.trim();
    if (!given) return;
    try { await call(`${path}/folder`, { method: 'POST', query: { path: join(folder, given), parents: 'true' } }); again(); } catch (failed) { fail(failed); }
  };
  const steps = folder.split('/').filter(Boolean);
  const columns = [
    { key: 'name', title: 'Name', value: (row) => `${row.type === 'folder' ? '0' : '1'}${row.name}`, cell: (row) => html`<span class="row"><${Icon} name=${row.type === 'folder' ? 'folder' : 'file'}/>${row.type === 'folder' || row.type === 'file' ? html`<button type="button" class="sort name" onClick=${() => (row.type === 'folder' ? setFolder(join(folder, row.name)) : open(row))}>${visibleText(row.name)}</button>` : html`<span>${visibleText(row.name)}${row.target ? html` <span class="quiet">→ ${visibleText(row.target)}</span>` : ''}</span>`}</span>` },
    { key: 'size', title: 'Size', num: true, value: (row) => row.size, cell: (row) => (row.type === 'file' ? bytes(row.size) : '') },
    { key: 'mode', title: 'Mode', hide: 'narrow-hide', value: (row) => row.mode, cell: (row) => html`<code>${row.mode}</code>` },
    { key: 'owner', title: 'Owner', hide: 'narrow-hide', value: (row) => row.uid, cell: (row) => `${row.uid}:${row.gid}` },
    { key: 'modified', title: 'Modified', num: true, hide: 'narrow-hide', value: (row) => row.modified, cell: (row) => new Date(row.modified * 1000).toLocaleString() },
    { key: 'do', title: html`<span class="visually-hidden">Actions</span>`, num: true, cell: (row) => html`<span class="acts">${row.type === 'file' || row.type === 'folder' ? html`<${Button} icon="down" tone="ghost" aria-label="Download ${visibleText(row.name)}" onClick=${() => save(row)}/>` : ''}<${Button} icon="trash" tone="ghost" allowed=${can} aria-label="Remove ${visibleText(row.name)}" onClick=${() => setRemoving(row)}/></span>` },
  ];
  if (!can.allowed) return html`<div class="empty">${can.reason ? visibleText(can.reason) : 'Asking for your permission…'}</div>`;
  return html`<div class="tools"><nav class="path grow" aria-label="Folder"><${Button} tone="ghost" aria-label="Root folder" onClick=${() => setFolder('/')}>/</${Button}>${steps.map((each, at) => html`<span key=${at} class="row"><${Button} tone="ghost" onClick=${() => setFolder(`/${steps.slice(0, at + 1).join('/')}`)}>${visibleText(each)}</${Button}>${at < steps.length - 1 ? html`<span class="quiet">/</span>` : ''}</span>`)}</nav>
      <input class="visually-hidden" type="file" multiple ref=${input} aria-label="Files to upload" tabindex="-1" onChange=${(event) => { sendAll([...event.target.files]); event.target.value = ''; }}/>
      <${Button} icon="up" tone="primary" onClick=${() => input.current.click()}>Upload</${Button}><${NewFolder} onMake=${make}/><${Button} icon="clock" onClick=${again}>Refresh</${Button}></div>
    ${sending.map((each) => html`<div key=${each.name} class="note"><span class="grow">Uploading ${visibleText(each.name)}<progress max="1" value=${each.share} aria-label="Upload of ${visibleText(each.name)}"></progress></span><${Button} onClick=${() => each.stop.abort()}>Stop</${Button}></div>`)}
    <${ErrorNote} error=${error}/>${value?.truncated ? html`<div class="note warn">Only the first ${LIMIT} entries are shown.</div>` : ''}
    <div class=${over ? 'drop' : ''} onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${(event) => { event.preventDefault(); setOver(false); sendAll([...event.dataTransfer.files]); }}>
      ${value ? html`<${DataTable} label="Files" columns=${columns} rows=${value.items} rowKey=${(row) => row.name} empty="This folder is empty. Drop files here, or upload some."/>` : error ? '' : html`<p class="quiet">Loading…</p>`}</div>
    ${editing ? html`<${FileEditor} file=${editing} path=${path} allowed=${can} onClose=${() => setEditing(null)} onSaved=${again}/>` : ''}
    ${removing ? html`<${Confirm} title=${`Remove ${removing.name}`} action="Remove" onClose=${() => setRemoving(null)} onDo=${async () => { await call(path, { method: 'DELETE', query: { path: join(folder, removing.name), ...(removing.type === 'folder' ? { recursive: 'true' } : {}) } }); again(); }}><p>Remove <b>${visibleText(removing.name)}</b>${removing.type === 'folder' ? ' with everything in it' : ''}? This can't be undone.</p></${Confirm}>` : ''}`;
}

function NewFolder({ onMake }) {
  const [open, setOpen] = useState(false);
  const [text, setText] = useState('');
  if (!open) return html`<${Button} icon="plus" onClick=${() => setOpen(true)}>Folder</${Button}>`;
  return html`<form class="row" onSubmit=${(event) => { event.preventDefault(); onMake(text); setOpen(false); setText(''); }}><input aria-label="Name of the new folder" autofocus value=${text} onInput=${(event) => setText(event.target.value)}/><button type="submit">Create</button></form>`;
}

function FileEditor({ file, path, allowed, onClose, onSaved }) {
  const [text, setText] = useState(file.text);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const save = async () => {
    setBusy(true);
    try {
      await call(path, { method: 'PUT', body: new Blob([file.text.includes('\r\n') ? text.replace(/\r?\n/g, '\r\n') : text]), type: 'application/octet-stream', query: { path: file.path } });
      toast(`${file.path}: saved`);
      onSaved();
      onClose();
    } catch (failed) { if (!ended(failed)) setError(failed); setBusy(false); }
  };
  return html`<${Dialog} title=${visibleText(file.path)} wide=${true} onClose=${onClose} footer=${html`<${Button} onClick=${onClose}>Close</${Button}><${Button} tone="primary" allowed=${allowed} disabled=${busy || text === file.text} onClick=${save}>Save</${Button}>`}>
    <${ErrorNote} error=${error}/><textarea class="code" spellcheck="false" aria-label="Contents of ${visibleText(file.path)}" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></${Dialog}>`;
}
