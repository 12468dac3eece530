// One pool: its members, those that are warm and those that became sandboxes.
import { html, visibleText } from '../lib.js';
import { listAll, usePolled } from '../api.js';
import { Age, Card, DataTable, ErrorNote, Status } from '../ui.js';
import { statusWord } from '../words.js';
import { linkTo } from './list.js';
import { Existing } from './object.js';

const EVERY = 4000;

export default function PoolPage(props) {
  return html`<${Existing} ...${props} cards=${Members}/>`;
}

const warm = ({ metadata, status }) => ({ key: metadata.uid, name: metadata.name, href: linkTo({ name: 'instances', namespaced: true }, metadata), role: 'Warm', state: status.state, host: status.host, since: metadata.creationTimestamp });
const claimed = (object) => ({ key: object.metadata.uid, name: object.metadata.name, href: linkTo({ name: 'sandboxes', namespaced: true }, object.metadata), role: 'Claimed', state: statusWord(object), host: object.status.host, since: object.metadata.creationTimestamp });

/** Containers that wait for a sandbox, and the sandboxes of its template that began with one. */
function Members({ object }) {
  const { namespace, name } = object.metadata;
  const template = object.spec.templateRef.name;
  const ask = async (signal) => {
    const head = `namespaces/${encodeURIComponent(namespace)}`;
    const [instances, sandboxes] = await Promise.all([
      listAll(`${head}/instances`, { signal, query: { fieldSelector: `spec.parent.kind=SandboxPool,spec.parent.name=${name}` } }),
      listAll(`${head}/sandboxes`, { signal, query: { fieldSelector: `spec.templateRef.name=${template},status.launchType=Warm` } }),
    ]);
    return [...instances.items.map(warm), ...sandboxes.items.map(claimed)];
  };
  const { value, error } = usePolled(ask, EVERY, [namespace, name, template], true);
  const hosts = new Set((value ?? []).map((member) => member.host)).size > 1;
  return html`<${Card} wide=${true} title="Members"><${ErrorNote} error=${error}/>${!value ? (error ? '' : html`<p class="quiet">Loading…</p>`) : html`<${DataTable} label="Members" rows=${value} rowKey=${(member) => member.key} href=${(member) => member.href} empty="None yet." columns=${[
    { key: 'name', title: 'Name', value: (member) => member.name, cell: (member) => html`<a class="strong" href=${member.href}>${visibleText(member.name)}</a>` },
    { key: 'role', title: 'Member', value: (member) => member.role, cell: (member) => member.role },
    { key: 'state', title: 'State', value: (member) => member.state, cell: (member) => html`<${Status} word=${member.state}/>` },
    ...(hosts ? [{ key: 'host', title: 'Host', value: (member) => member.host ?? '', cell: (member) => visibleText(member.host ?? '') }] : []),
    { key: 'age', title: 'Age', num: true, value: (member) => -Date.parse(member.since), cell: (member) => html`<${Age} time=${member.since}/>` },
  ]}/>`}</${Card}>`;
}
