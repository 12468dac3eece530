// Somebody else's MCP server: its tools, its sessions, and the approval of tools that changed.
import { html, useState, visibleText } from '../lib.js';
import { call, ended, pathOf, sandboxPath, useCan, usePolled } from '../api.js';
import { Age, Button, Card, Confirm, ErrorNote, fail, Facts, Icon, Status, toast } from '../ui.js';
import { linkTo } from './list.js';
import { Existing } from './object.js';

const MERGE = 'application/merge-patch+json';
const SESSION = 'paddock/mcp-session';

export default function McpServerPage(props) {
  return html`<${Existing} ...${props} actions=${Actions} cards=${Cards}/>`;
}

const MOST_LETTERS = 160;
const short = (text) => visibleText(text.length > MOST_LETTERS ? `${text.slice(0, MOST_LETTERS)}…` : text);
const readyOf = (object) => object.status?.conditions?.find((each) => each.type === 'Ready');
const patch = (kind, { metadata }, spec) => call(pathOf(kind, metadata.namespace, metadata.name), { method: 'PATCH', type: MERGE, body: JSON.stringify({ metadata: { resourceVersion: metadata.resourceVersion }, spec }) });

function Actions({ kind, object }) {
  const { name, namespace } = object.metadata;
  const can = useCan('update', kind.kind, namespace, name);
  const [asking, setAsking] = useState(false);
  const enabled = object.spec.enabled !== false;
  const { changedDigest: changed, changedCount: count, changes = [] } = object.status?.tools ?? {};
  const pending = changed && changed !== object.spec.tools?.digest && readyOf(object)?.reason === 'ToolsChanged';
  const set = (next) => patch(kind, object, { enabled: next }).then(() => toast(`${name}: ${next ? 'enabled' : 'disabled'}`), fail);
  return html`${pending ? html`<${Button} icon="ok" tone="primary" allowed=${can} onClick=${() => setAsking(true)}>Approve tools</${Button}>` : ''}
    <${Button} icon=${enabled ? 'idle' : 'play'} allowed=${can} onClick=${() => set(!enabled)}>${enabled ? 'Disable' : 'Enable'}</${Button}>
    ${asking ? html`<${Confirm} title=${`Approve the tools of ${name}`} action="Approve" tone="primary" onClose=${() => setAsking(false)} onDo=${async () => { await patch(kind, object, { tools: { digest: changed } }); toast(`${name}: tools approved`); }}>
      <p>The server lists ${count ?? 'other'} tools now, with other definitions than those that were approved. What a tool describes is text of the server’s author: read it before agents do.</p>
      ${changes.length ? html`<ul class="words">${changes.map((each) => html`<li key=${each.tool}>${each.change} <code>${visibleText(each.tool)}</code>${each.description ? html`: ${visibleText(each.description)}` : ''}</li>`)}</ul>` : ''}
      <p class="gap"><code class="wrap">${visibleText(changed)}</code></p></${Confirm}>` : ''}`;
}

function Cards({ object }) {
  const { status = {}, spec } = object;
  const tools = status.tools ?? {};
  const names = tools.names ?? [];
  return html`<${Card} title="Tools">${tools.count === undefined ? html`<p class="quiet">It has listed none yet: it starts with the first call of a client.</p>` : html`<p class="gap-below"><b>${tools.count}</b> for clients${tools.leftOut ? html`, <b>${tools.leftOut}</b> left out` : ''}</p>${names.length ? html`<ul class="words">${names.map((each) => html`<li key=${each}><code>${visibleText(each)}</code></li>`)}</ul>` : ''}`}</${Card}>
    <${Card} title="How it runs"><${Facts} facts=${[
      ['Sandboxed', html`<${Status} word="True" tone="ok"/> ${spec.sandbox === 'Preferred' ? 'always here; a user may run it unsandboxed by paddock mcp connect --allow-unsandboxed' : 'always: each session in a sandbox of its own'}`],
      ['Trust', html`<${Status} word=${spec.trust ?? 'user_added'} tone=${spec.trust === 'verified' ? 'ok' : 'idle'}/>`],
      ['Network', spec.network?.allowedHosts?.length ? spec.network.allowedHosts.join(', ') : 'none'],
      spec.image && ['Image', html`<code class="wrap">${short(spec.image)}</code>`],
      ['Command', html`<code class="wrap">${short([spec.command, ...(spec.args ?? [])].join(' '))}</code>`],
      status.protocol && ['Protocol', status.protocol]]}/></${Card}>
    <${Sessions} object=${object}/>`;
}

/** Its sessions: each is a sandbox that the server owns. */
function Sessions({ object }) {
  const { namespace, uid } = object.metadata;
  const { value, error } = usePolled((signal) => call(`namespaces/${encodeURIComponent(namespace)}/sandboxes`, { signal, query: { labelSelector: SESSION } }), 4000, [namespace, uid], true);
  const [ending, setEnding] = useState('');
  const can = useCan('delete', 'Sandbox', namespace);
  const found = (value?.items ?? []).filter((each) => each.metadata.ownerReferences?.some((one) => one.uid === uid));
  const end = async () => { await call(sandboxPath(namespace, ending), { method: 'DELETE' }); toast(`session ${ending}: ended`); };
  return html`<${Card} wide=${true} title="Sessions"><${ErrorNote} error=${error}/>${!value ? html`<p class="quiet">Loading…</p>` : !found.length ? html`<p class="quiet">None is open.</p>` : html`<table class="plain"><thead><tr><th>Sandbox</th><th>Ready</th><th class="narrow-hide">Session</th><th class="num">Age</th><th><span class="visually-hidden">Actions</span></th></tr></thead><tbody>${found.map((each) => html`<tr key=${each.metadata.uid}>
      <td><a class="strong" href=${linkTo({ name: 'sandboxes', namespaced: true }, each.metadata)}>${visibleText(each.metadata.name)}</a></td><td><${Status} word=${readyOf(each)?.reason ?? 'Pending'}/></td><td class="narrow-hide"><code>${visibleText(each.metadata.labels?.[SESSION])}</code></td><td class="num"><${Age} time=${each.metadata.creationTimestamp}/></td>
      <td class="num"><${Button} tone="danger" allowed=${can} onClick=${() => setEnding(each.metadata.name)}><${Icon} name="bad"/>End</${Button}></td></tr>`)}</tbody></table>`}
    ${ending ? html`<${Confirm} title=${`End session ${ending}`} action="End" onClose=${() => setEnding('')} onDo=${end}><p>Its client gets an error for what it called, and a new session at its next call.</p></${Confirm}>` : ''}</${Card}>`;
}
