// A plugin: the permissions that it needs, declares and was granted; its settings and its objects.
import { html, useState, useValue, visibleText } from '../lib.js';
import { call, kinds, pathOf, useCan } from '../api.js';
import { Button, Card, Confirm, Facts, Status, toast } from '../ui.js';
import { linkTo } from './list.js';
import { Existing } from './object.js';

const MERGE = 'application/merge-patch+json';
const WORDS = { network: 'Network to', secret: 'Secret', volume: 'Volume', level: 'Security level' };

export default function PluginPage(props) {
  return html`<${Existing} ...${props} own=${true} state=${stateOf} actions=${Actions} cards=${Cards}/>`;
}

function stateOf({ status }) {
  for (const type of ['Accepted', 'Ready']) {
    const found = status?.conditions?.find((each) => each.type === type);
    if (!found) return ['Pending', 'wait'];
    if (found.status !== 'True') return [found.reason, 'bad'];
  }
  return ['Ready', 'ok'];
}

/** Permissions as [kind, name] each: a network has many hosts. */
const flat = (permissions) => (permissions ?? []).flatMap((each) => Object.entries(each).flatMap(([kind, names]) => [names].flat().filter((name) => name !== null).map((name) => [kind, name])));
const keys = (permissions) => new Set(flat(permissions).map((each) => each.join(' ')));

function Actions({ kind, object }) {
  const { name, namespace } = object.metadata;
  const can = useCan('update', kind.kind, namespace, name);
  const [asking, setAsking] = useState(false);
  const granted = keys(object.spec.granted);
  const declared = flat(object.spec.permissions);
  if (declared.every((each) => granted.has(each.join(' ')))) return null;
  const grant = async () => {
    await call(pathOf(kind, namespace, name), { method: 'PATCH', type: MERGE, body: JSON.stringify({ metadata: { resourceVersion: object.metadata.resourceVersion }, spec: { granted: object.spec.permissions } }) });
    toast(`${name}: permissions granted`);
  };
  return html`<${Button} icon="shield" tone="primary" allowed=${can} onClick=${() => setAsking(true)}>Grant permissions</${Button}>
    ${asking ? html`<${Confirm} title=${`Grant permissions to ${name}`} action="Grant" tone="primary" onClose=${() => setAsking(false)} onDo=${grant}><p>Its objects get what it declares, and no more:</p>
      <ul class="words gap">${declared.map(([type, value]) => html`<li key="${type} ${value}">${WORDS[type] ?? type} <code>${visibleText(value)}</code></li>`)}</ul></${Confirm}>` : ''}`;
}

function Cards({ object }) {
  const { spec, status = {} } = object;
  return html`<${Permissions} spec=${spec} needed=${status.needed}/>
    <${Card} title="Plugin"><${Facts} facts=${[['Version', spec.version], ['Type', spec.type], spec.description && ['Description', spec.description], spec.author && ['Author', spec.author]]}/></${Card}>
    <${Settings} spec=${spec}/><${Objects} object=${object}/>`;
}

function Permissions({ spec, needed }) {
  const [needs, declared, granted] = [keys(needed), keys(spec.permissions), keys(spec.granted)];
  const all = [...new Set([...needs, ...declared, ...granted])].sort();
  const mark = (has, tone = 'ok') => (has ? html`<${Status} word="yes" tone=${tone}/>` : html`<span class="quiet">no</span>`);
  return html`<${Card} title="Permissions">${!all.length ? html`<p class="quiet">It needs none.</p>` : html`<table class="plain"><thead><tr><th>Permission</th><th>Needed</th><th>Declared</th><th>Granted</th></tr></thead><tbody>${all.map((each) => { const at = each.indexOf(' '); return html`<tr key=${each}>
      <td>${WORDS[each.slice(0, at)] ?? each.slice(0, at)} <code class="wrap">${visibleText(each.slice(at + 1))}</code></td><td>${mark(needs.has(each), 'idle')}</td><td>${mark(declared.has(each), 'idle')}</td>
      <td>${granted.has(each) || !needs.has(each) ? mark(granted.has(each)) : html`<${Status} word="missing" tone="bad"/>`}</td></tr>`; })}</tbody></table>`}
    <p class="quiet gap">What it needs is computed from its objects. Nothing is created before all of it is granted.</p></${Card}>`;
}

function Settings({ spec }) {
  const fields = Object.entries(spec.configuration ?? {});
  return html`<${Card} title="Settings">${!fields.length ? html`<p class="quiet">None.</p>` : html`<table class="plain"><thead><tr><th>Setting</th><th>Value</th></tr></thead><tbody>${fields.map(([name, each]) => html`<tr key=${name}><td><b>${visibleText(name)}</b><div class="quiet">${visibleText(each.description ?? '')}</div></td>
      <td class="wrap"><code>${visibleText(JSON.stringify(spec.config?.[name] ?? each.default ?? null))}</code> ${spec.config && name in spec.config ? '' : html`<span class="quiet">default</span>`}</td></tr>`)}</tbody></table>`}</${Card}>`;
}

function Objects({ object }) {
  const known = useValue(kinds);
  const { namespace } = object.metadata;
  return html`<${Card} title="Objects"><table class="plain"><thead><tr><th>Kind</th><th>Name</th></tr></thead><tbody>${object.spec.objects.map((each) => { const kind = known.find((one) => one.kind === each.kind); const name = each.metadata?.name ?? ''; return html`<tr key="${each.kind}/${name}"><td class="quiet">${visibleText(each.kind)}</td><td>${kind ? html`<a href=${linkTo(kind, { namespace, name })}>${visibleText(name)}</a>` : visibleText(name)}</td></tr>`; })}</tbody></table></${Card}>`;
}
