// Tokens: create, see, revoke. A token's text is shown once.
import { html, useState, visibleText, when } from '../lib.js';
import { call, ended, usePolled } from '../api.js';
import { Age, Button, Confirm, DataTable, Dialog, ErrorNote, Field, Icon, Status, toast } from '../ui.js';

const ROLES = [['viewer', 'reads objects and logs'], ['user', 'also writes sandboxes and works in them'], ['operator', 'also writes every other kind of the namespace'], ['admin', 'also writes quotas; with * everything']];
const LASTS = [['1 hour', 3600], ['1 day', 86400], ['30 days', 30 * 86400], ['1 year', 365 * 86400], ['until revoked', null]];
const TONES = { active: 'ok', revoked: 'bad', expired: 'idle' };

export default function Tokens() {
  const [run, setRun] = useState(0);
  const { value, error } = usePolled((signal) => call('tokens', { signal }), 5000, [run]);
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState(null);
  const stateOf = (row) => String(row.state).toLowerCase();
  return html`<div class="head"><div class="title"><h1 tabindex="-1">Tokens</h1></div><${Button} icon="plus" tone="primary" onClick=${() => setCreating(true)}>New token</${Button}></div><${ErrorNote} error=${error}/>
    ${!value ? (error ? '' : html`<p class="quiet">Loading…</p>`) : html`<${DataTable} label="Tokens" rows=${value.items} rowKey=${(row) => row.metadata.uid} empty=${html`<${Icon} name="key" size=${36}/><b>No tokens</b><span>A token lets a program or a person use the API over TCP.</span>`} columns=${[
      { key: 'name', title: 'Name', value: (row) => row.metadata.name, cell: (row) => html`<b>${visibleText(row.metadata.name)}</b>` },
      { key: 'state', title: 'State', value: stateOf, cell: (row) => html`<${Status} word=${row.state} tone=${TONES[stateOf(row)] ?? 'idle'}/>` },
      { key: 'grant', title: 'Grant', value: (row) => row.grant.role, cell: (row) => `${row.grant.role} in ${row.grant.namespaces.join(', ')}` },
      { key: 'by', title: 'Created by', hide: 'narrow-hide', value: (row) => row.createdBy, cell: (row) => visibleText(row.createdBy) },
      { key: 'age', title: 'Age', num: true, value: (row) => -Date.parse(row.metadata.creationTimestamp), cell: (row) => html`<${Age} time=${row.metadata.creationTimestamp}/>` },
      { key: 'expires', title: 'Expires', hide: 'narrow-hide', value: (row) => row.expires ?? '9', cell: (row) => (row.expires ? when(row.expires) : 'never') },
      { key: 'do', title: html`<span class="visually-hidden">Actions</span>`, num: true, cell: (row) => (stateOf(row) === 'active' ? html`<${Button} tone="danger" onClick=${() => setRevoking(row.metadata.name)}>Revoke</${Button}>` : '') },
    ]}/>`}
    ${creating ? html`<${Create} onClose=${() => { setCreating(false); setRun(run + 1); }}/>` : ''}
    ${revoking ? html`<${Confirm} title=${`Revoke ${revoking}`} action="Revoke" onClose=${() => setRevoking(null)} onDo=${async () => { await call(`tokens/${encodeURIComponent(revoking)}`, { method: 'DELETE' }); toast(`${revoking}: revoked`); setRun(run + 1); }}><p>Whoever uses <b>${visibleText(revoking)}</b> is signed out at once, and its open commands, logs and transfers end.</p></${Confirm}>` : ''}`;
}

function Create({ onClose }) {
  const [name, setName] = useState('');
  const [role, setRole] = useState('user');
  const [spaces, setSpaces] = useState('default');
  const [lasts, setLasts] = useState(2);
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const create = async () => {
    setError(null);
    try {
      setMade(await call('tokens', { method: 'POST', body: { name, grant: { role, namespaces: spaces.split(/[\s,]+/).filter(Boolean) }, expirationSeconds: LASTS[lasts][1] } }));
    } catch (failed) { if (!ended(failed)) setError(failed); }
  };
  if (made) return html`<${Dialog} title="Token ${visibleText(made.metadata.name)}" onClose=${onClose} footer=${html`<${Button} icon="file" tone="primary" onClick=${() => navigator.clipboard.writeText(made.token).then(() => toast('copied'), () => toast('select and copy it yourself', 'warn'))}>Copy</${Button}><${Button} onClick=${onClose}>Done</${Button}>`}>
    <p>This is its text. It is shown this once, and can't be read again.</p><pre class="block" tabindex="0">${made.token}</pre></${Dialog}>`;
  return html`<${Dialog} title="New token" onClose=${onClose} footer=${html`<${Button} onClick=${onClose}>Cancel</${Button}><${Button} tone="primary" disabled=${!name} onClick=${create}>Create</${Button}>`}>
    <div class="form"><${Field} label="Name" help="Whom or what it is for; the audit shows it.">${(props) => html`<input ...${props} value=${name} onInput=${(event) => setName(event.target.value)} placeholder="ci"/>`}</${Field}>
    <${Field} label="Role" help=${ROLES.find((each) => each[0] === role)[1]}>${(props) => html`<select ...${props} value=${role} onChange=${(event) => setRole(event.target.value)}>${ROLES.map(([each]) => html`<option key=${each} value=${each}>${each}</option>`)}</select>`}</${Field}>
    <${Field} label="Namespaces" help="Separated by commas; * is every namespace.">${(props) => html`<input ...${props} value=${spaces} onInput=${(event) => setSpaces(event.target.value)}/>`}</${Field}>
    <${Field} label="Valid for">${(props) => html`<select ...${props} value=${lasts} onChange=${(event) => setLasts(Number(event.target.value))}>${LASTS.map(([text], at) => html`<option key=${text} value=${at}>${text}</option>`)}</select>`}</${Field}></div><${ErrorNote} error=${error}/></${Dialog}>`;
}
