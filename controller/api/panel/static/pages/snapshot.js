// A snapshot: what it has and lacks, its lineage, and what begins from it; forks of it, and a rollback to it.
import { html, useState, useValue, visibleText, when } from '../lib.js';
import { call, kinds, listAll, pathOf, sandboxPath, useCan, usePolled } from '../api.js';
import { Button, Card, Confirm, Facts, toast } from '../ui.js';
import { linkTo } from './list.js';
import { Existing } from './object.js';

const size = (bytes) => (bytes >= 1 << 20 ? `${(bytes / (1 << 20)).toFixed(1)} MiB` : `${Math.ceil((bytes ?? 0) / 1024)} KiB`);

export default function SnapshotPage(props) {
  return html`<${Existing} ...${props} own=${true} state=${stateOf} actions=${Actions} cards=${Cards}/>`;
}

function stateOf({ status }) {
  const captured = status?.conditions?.find((each) => each.type === 'Captured');
  if (!captured) return ['Pending', 'wait'];
  return [captured.reason, { True: 'ok', False: 'bad' }[captured.status] ?? 'wait'];
}

function Actions({ object }) {
  const { name, namespace } = object.metadata;
  const source = object.spec.sandboxRef?.name ?? '';
  const create = useCan('create', 'Sandbox', namespace);
  const update = useCan('update', 'Sandbox', namespace, source);
  const [asking, setAsking] = useState('');
  if (!source || stateOf(object)[1] !== 'ok') return null;
  const post = (verb, body) => call(sandboxPath(namespace, source, verb), { method: 'POST', body: JSON.stringify(body) });
  const fork = async () => {
    const forks = await post('fork', { snapshot: name });
    toast(`${forks.items.map((each) => each.metadata.name).join(', ')}: created`);
  };
  const rollback = async () => {
    const { backup } = await post('rollback', { snapshot: name });
    toast(`${source}: rolled back; its files until now are in ${backup}`);
  };
  return html`<${Button} icon="layers" allowed=${create} onClick=${() => setAsking('fork')}>Fork</${Button}><${Button} tone="danger" allowed=${update} onClick=${() => setAsking('rollback')}>Roll back</${Button}>
    ${asking === 'fork' ? html`<${Confirm} title=${`Fork ${source}`} action="Fork" tone="primary" onClose=${() => setAsking('')} onDo=${fork}><p>A new sandbox begins with the files of this snapshot. It shares what code has created, such as random seeds and keys.</p></${Confirm}>` : ''}
    ${asking === 'rollback' ? html`<${Confirm} title=${`Roll ${source} back`} action="Roll back" onClose=${() => setAsking('')} onDo=${rollback}><p>What goes: its processes, and all that was written since ${when(object.status.capturedTime)} to its root file system, its folders in memory, and its own volumes. It gets a new container.</p><p>Its present files are saved in another snapshot first. Folders of the host, and volumes that other sandboxes use, stay as they are.</p></${Confirm}>` : ''}`;
}

function Cards({ object }) {
  const { status = {}, spec } = object;
  const bytes = status.sizeBytes ?? {};
  return html`<${Card} title="Snapshot"><${Facts} facts=${[
    ['Sandbox', spec.sandboxRef?.name ?? 'imported'], status.capturedTime && ['Captured', when(status.capturedTime)],
    ['Stood still', `${(status.frozenSeconds ?? 0).toFixed(2)} s`], ['Files', status.files ?? 0],
    ['Root layer', size(bytes.root)], ['In memory', size(bytes.tmpfs)], ['Volumes', size(bytes.volumes)],
    status.image && ['Image', status.image], status.securityLevel && ['Level', status.securityLevel], status.host && ['Host', status.host]].filter(Boolean)}/></${Card}>
    <${Lineage} object=${object}/>
    ${status.left?.length ? html`<${Card} title="Not taken"><table class="plain"><thead><tr><th>Path</th><th>Reason</th></tr></thead><tbody>${status.left.map((each) => html`<tr key=${each.name}><td class="wrap"><code>${visibleText(each.name)}</code></td><td>${visibleText(each.reason)}</td></tr>`)}</tbody></table></${Card}>` : ''}`;
}

const origin = (sandbox) => (sandbox.spec.restoreFrom ?? sandbox.spec.template?.restoreFrom)?.snapshotRef.name;

function Lineage({ object }) {
  const { name, namespace } = object.metadata;
  const known = useValue(kinds);
  const kind = (plural) => known.find((each) => each.name === plural);
  const { value: sandboxes } = usePolled((signal) => listAll(pathOf('sandboxes', namespace), { signal }).then((found) => found.items ?? found), 10000, [namespace, name]);
  const later = (sandboxes ?? []).filter((each) => origin(each) === name).map((each) => each.metadata.name);
  const link = (plural, one) => (kind(plural) ? html`<a href=${linkTo(kind(plural), { namespace, name: one })}>${visibleText(one)}</a>` : visibleText(one));
  const parent = object.status?.parent;
  return html`<${Card} title="Lineage"><${Facts} facts=${[
    ['Its sandbox began from', parent ? link('sandboxsnapshots', parent) : 'its image'],
    ['Begin from it', later.length ? html`<span>${later.map((one, at) => html`${at ? ', ' : ''}${link('sandboxes', one)}`)}</span>` : 'no sandboxes']]}/></${Card}>`;
}
