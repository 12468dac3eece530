// The form of a sandbox, from its JSON Schema, with a YAML view of the same object. Apply shows the plan first.
import { at, copyOf, html, useMemo, visibleText, withValue } from '../lib.js';
import { call, usePolled } from '../api.js';
import { Button, Card, Field } from '../ui.js';
import { DocumentForm } from './document.js';
import { helpOf, Input, schemaAt, Select } from './fields.js';
import { namespace as chosen } from './list.js';

// The levels by the names that were asked for; what each allows is said beside it, from its profile.
const LEVELS = { 'full-isolation': 'Full Isolation (No Network)', development: 'Development (Local Network)', build: 'Build (Package Access)', production: 'Production (Full Access)' };
const MODES = { none: 'no network', sealed: 'listed host names only, through a proxy of its own', public: 'the Internet, but not this host or its local network' };
const USERS = { '': 'the image’s user, or one of its own', own: 'a user of its own' };
const ORDER = ['none', 'sealed', 'public'];
const LIMITS = [['cpu', 'CPU', 'cores'], ['memory', 'Memory', 'bytes'], ['gpus', 'GPUs', 'number'], ['pids', 'Processes (PIDs)', 'number'], ['disk', 'Disk', 'bytes']];
const WHOLE = new Set(['gpus', 'pids']);

const fresh = () => ({ apiVersion: 'paddock/v1alpha1', kind: 'Sandbox', metadata: { name: '', namespace: chosen.get() || 'default' }, spec: { template: { image: 'paddock/python:1', command: ['sleep', 'infinity'], securityLevel: 'full-isolation' }, resources: { limits: {} }, runState: 'Running' } });

/** Levels from the strictest on; a profile of the operator's follows the level that it derives from. */
function byStrictness(profiles) {
  const names = Object.keys(LEVELS);
  const rank = ({ metadata, spec }) => names.indexOf(metadata.name) + 1 || names.indexOf(spec?.base) + 1.5;
  return [...profiles].sort((one, other) => rank(one) - rank(other) || one.metadata.name.localeCompare(other.metadata.name));
}

/** What a level allows, in words. */
export function allows(profile) {
  const found = profile.status?.effective;
  if (!found) return 'not accepted: no sandbox may use it';
  const hosts = found.network.allowedHosts;
  return [
    `Network: ${MODES[found.network.mode] ?? found.network.mode}${hosts ? ` (${hosts.join(', ')})` : ''}`,
    found.readOnlyRootFilesystem ? 'read-only root' : 'writable root',
    found.capabilities.length ? `capabilities ${found.capabilities.join(', ')}` : 'no capabilities',
    USERS[found.defaultUser] ?? `user ${found.defaultUser}`,
  ].join(' · ');
}

export default function SandboxForm({ kind, object, create }) {
  const first = useMemo(() => (create ? fresh() : object), []);
  return html`${create ? html`<div class="crumb"><a href="#/sandboxes">Sandboxes</a></div><div class="head"><h1 tabindex="-1">New sandbox</h1></div>` : ''}
    <${DocumentForm} kind=${kind} first=${first} create=${create} tidy=${tidy} Fields=${Fields}/>`;
}

/** The document without rows of lists that were left empty. */
function tidy(doc) {
  const made = copyOf(doc);
  for (const path of [['spec', 'template', 'env'], ['spec', 'template', 'volumes']]) {
    const list = at(made, path);
    if (list) Object.assign(at(made, path.slice(0, -1)), { [path.at(-1)]: list.filter((each) => Object.values(each).some((one) => one !== '' && one !== undefined && one !== false)) });
  }
  const { template } = made.spec;
  if (template?.command && !template.command.length) delete template.command;
  if (made.spec.workspace && !made.spec.workspace.hostPath && !made.spec.workspace.volume) delete made.spec.workspace;
  if (template?.security) for (const [name, value] of Object.entries(template.security)) if (value === null || value === undefined) delete template.security[name];
  if (template?.security && !Object.keys(template.security).length) delete template.security;
  return made;
}

function Fields({ doc, set, schema, create, causes }) {
  const { spec, metadata } = doc;
  const namespace = metadata.namespace ?? 'default';
  const profiles = byStrictness(usePolled((signal) => call('securityprofiles', { signal }), 0, []).value?.items ?? []);
  const templates = usePolled((signal) => call(`namespaces/${encodeURIComponent(namespace)}/sandboxtemplates`, { signal }), 0, [namespace]).value?.items ?? [];
  const own = Boolean(spec.template);
  const template = templates.find((each) => each.metadata.name === spec.templateRef?.name);
  const level = spec.securityLevel ?? spec.template?.securityLevel ?? template?.spec.securityLevel ?? 'full-isolation';
  const profile = profiles.find((each) => each.metadata.name === level);
  const effective = profile?.status?.effective;
  const field = (path) => ({ schema: schemaAt(schema, path), error: causes[path.join('.')], value: at(doc, path), onChange: (value) => set(path, value) });
  const choose = (ref) => set(['spec'], ref ? { ...spec, template: undefined, templateRef: { name: ref } } : { ...spec, templateRef: undefined, template: { image: 'paddock/python:1', command: ['sleep', 'infinity'], securityLevel: level } });
  const setLevel = (name) => set(own ? ['spec', 'template', 'securityLevel'] : ['spec', 'securityLevel'], name);
  return html`
    <${Card} title="Sandbox"><div class="cols">
      <${Input} label="Name" path=${['metadata', 'name']} ...${field(['metadata', 'name'])} disabled=${!create} placeholder="my-app"/>
      <${Input} label="Namespace" path=${['metadata', 'namespace']} ...${field(['metadata', 'namespace'])} disabled=${!create}/>
      <${Field} label="Enabled" badge="live" help=${spec.runState === 'Paused' ? 'Frozen now; turning it on or off ends that.' : 'Off: stopped, its workspace and volumes kept.'}>${(props) => html`<input type="checkbox" class="switch" role="switch" ...${props} checked=${spec.runState !== 'Suspended'} onChange=${(event) => set(['spec', 'runState'], event.target.checked ? 'Running' : 'Suspended')}/>`}</${Field}>
      <${Field} label="Container" help="A template is shared and can have a warm pool." error=${causes['spec.templateRef.name']}>${(props) => html`<select ...${props} value=${spec.templateRef?.name ?? ''} onChange=${(event) => choose(event.target.value)}><option value="">From an image, below</option>${[...new Set([...templates.map((each) => each.metadata.name), spec.templateRef?.name].filter(Boolean))].map((each) => html`<option key=${each} value=${each}>Template ${each}</option>`)}</select>`}</${Field}>
      ${own ? html`<${Input} label="Image" ...${field(['spec', 'template', 'image'])} wide=${true} effect=${true}/>
      <${Input} label="Command" ...${field(['spec', 'template', 'command'])} value=${words(spec.template.command)} onChange=${(value) => set(['spec', 'template', 'command'], unwords(value))} effect=${true} placeholder="the image’s own"/>` : ''}</div></${Card}>
    <${Card} title="Resources"><div class="cols">${LIMITS.map(([name, label]) => html`<${Input} key=${name} label=${label} ...${field(['spec', 'resources', 'limits', name])} effect=${name !== 'gpus'} badge=${name === 'gpus' ? 'recreate' : ''} inputmode=${WHOLE.has(name) ? 'numeric' : 'text'}
        placeholder=${defaultOf(name, template, effective)} onChange=${(value) => set(['spec', 'resources', 'limits', name], value === '' ? undefined : WHOLE.has(name) && /^\d+$/.test(value) ? Number(value) : value)}/>`)}</div></${Card}>
    <${Card} title="Security"><fieldset class="field"><legend>Level <span class="badge recreate">recreate</span></legend><div class="choices">${profiles.map((each) => html`<label key=${each.metadata.name} class="choice"><input type="radio" name="level" value=${each.metadata.name} checked=${each.metadata.name === level} onChange=${() => setLevel(each.metadata.name)}/><b>${LEVELS[each.metadata.name] ?? visibleText(each.metadata.name)}</b><span class="what">${visibleText(allows(each))}</span></label>`)}</div>${causes['spec.template.securityLevel'] ?? causes['spec.securityLevel'] ? html`<span class="wrong">${causes['spec.template.securityLevel'] ?? causes['spec.securityLevel']}</span>` : ''}</fieldset>
      ${own ? html`<${Narrowing} doc=${doc} set=${set} schema=${schema} effective=${effective} causes=${causes}/>` : html`<p class="quiet gap">Capabilities, root filesystem, volumes and environment are the template’s: <a href="#/sandboxtemplates/${encodeURIComponent(metadata.namespace)}/${encodeURIComponent(spec.templateRef.name)}/edit">edit the template</a>.</p>`}
      <div class="gap"><${Input} label="Allowed hosts" ...${field(['spec', 'network', 'allowedHosts'])} effect=${true} value=${(spec.network?.allowedHosts ?? []).join(', ')} placeholder="what the level allows" onChange=${(value) => set(['spec', 'network', 'allowedHosts'], value.trim() ? value.split(/[\s,]+/).filter(Boolean) : undefined)}/></div></${Card}>
    <${Card} title="Life"><div class="cols">
      <${Select} label="Restart policy" ...${field(['spec', 'restartPolicy'])}/>
      <${Input} label="Idle time (seconds)" ...${field(['spec', 'lifecycle', 'idleTimeoutSeconds'])} inputmode="numeric" placeholder="1800 (default)" onChange=${(value) => set(['spec', 'lifecycle', 'idleTimeoutSeconds'], value === '' ? undefined : /^\d+$/.test(value) ? Number(value) : value)}/>
      <${Select} label="When idle" ...${field(['spec', 'lifecycle', 'onIdle'])}/>
      <${Select} label="On suspension" ...${field(['spec', 'lifecycle', 'onSuspend'])}/>
      ${own ? html`<${Field} label="Agent" badge="recreate" help=${helpOf(schemaAt(schema, ['spec', 'template', 'agent']))} error=${causes['spec.template.agent']}>${(props) => html`<input type="checkbox" class="switch" role="switch" ...${props} checked=${Boolean(spec.template.agent)} onChange=${(event) => set(['spec', 'template', 'agent'], event.target.checked ? {} : undefined)}/>`}</${Field}>` : ''}</div></${Card}>
    <${Models} namespace=${namespace} list=${spec.models ?? []} help=${helpOf(schemaAt(schema, ['spec', 'models']))} error=${causes['spec.models']} onChange=${(list) => set(['spec', 'models'], list.length ? list : undefined)}/>
    ${own ? html`<${Volumes} doc=${doc} set=${set} schema=${schema} causes=${causes}/><${Environment} doc=${doc} set=${set} schema=${schema} causes=${causes}/>` : ''}`;
}

function defaultOf(name, template, effective) {
  const found = template?.spec.resources?.limits?.[name] ?? effective?.defaultLimits?.[name];
  return found ? `${found} (default)` : name === 'gpus' ? '0' : 'no limit';
}

/** What narrows the level: network, root filesystem, capabilities. Nothing here can widen it. */
function Narrowing({ doc, set, schema, effective, causes }) {
  const security = doc.spec.template.security ?? {};
  const put = (name, value) => set(['spec', 'template', 'security'], Object.fromEntries(Object.entries({ ...security, [name]: value }).filter(([, each]) => each !== undefined && each !== null)));
  const widest = ORDER.indexOf(effective?.network.mode ?? 'none');
  const kept = security.capabilities ?? effective?.capabilities ?? [];
  const all = [...new Set([...(effective?.capabilities ?? []), ...kept])];
  const about = (name) => helpOf(schemaAt(schema, ['spec', 'template', 'security', name]));
  return html`<div class="cols gap">
    <${Field} label="Network mode" badge="recreate" help="Bridge is the level’s own network. Host is not offered: a sandbox never shares this host’s network." error=${causes['spec.template.security.network.mode'] ?? causes['spec.template.security.network']}>${(props) => html`<select ...${props} value=${security.network?.mode ?? ''} onChange=${(event) => put('network', event.target.value ? { mode: event.target.value } : undefined)}>
      <option value="">Bridge: as the level allows (${effective?.network.mode ?? '…'})</option>${ORDER.map((each, rank) => html`<option key=${each} value=${each} disabled=${rank > widest}>${each === 'none' ? 'None' : each === 'sealed' ? 'Listed hosts only' : 'Internet'}: ${MODES[each]}</option>`)}<option disabled>Host: refused</option></select>`}</${Field}>
    <${Field} label="Read-only root" badge="recreate" help=${about('readOnlyRootFilesystem')} error=${causes['spec.template.security.readOnlyRootFilesystem']}>${(props) => html`<input type="checkbox" class="switch" role="switch" ...${props} disabled=${effective?.readOnlyRootFilesystem} checked=${effective?.readOnlyRootFilesystem || security.readOnlyRootFilesystem === true} onChange=${(event) => put('readOnlyRootFilesystem', event.target.checked ? true : undefined)}/>`}</${Field}></div>
    <fieldset class="field gap"><legend>Capabilities <span class="badge recreate">recreate</span></legend>${all.length ? html`<div class="checks">${all.map((each) => html`<label key=${each}><input type="checkbox" checked=${kept.includes(each)} onChange=${(event) => { const next = all.filter((one) => (one === each ? event.target.checked : kept.includes(one))); put('capabilities', next.length === effective?.capabilities.length ? undefined : next); }}/><code>${each}</code></label>`)}</div>` : html`<span class="quiet">This level keeps none.</span>`}<div class="help">${about('capabilities')}</div>${causes['spec.template.security.capabilities'] ? html`<span class="wrong">${causes['spec.template.security.capabilities']}</span>` : ''}</fieldset>`;
}

const SOURCES = { providers: 'providerRef', modelservers: 'modelServerRef' };

/** The models that it may use: the providers and model servers of its namespace. */
function Models({ namespace, list, help, error, onChange }) {
  const ask = (plural) => (signal) => call(`namespaces/${encodeURIComponent(namespace)}/${plural}`, { signal });
  const lists = { providers: usePolled(ask('providers'), 0, [namespace]).value, modelservers: usePolled(ask('modelservers'), 0, [namespace]).value };
  const refs = Object.entries(SOURCES).flatMap(([plural, field]) => [...new Set([...(lists[plural]?.items ?? []).map((each) => each.metadata.name), ...list.map((each) => each[field]?.name)].filter(Boolean))].map((name) => ({ field, name })));
  const has = ({ field, name }) => list.some((each) => each[field]?.name === name);
  const toggle = (ref, on) => onChange(on ? [...list, { [ref.field]: { name: ref.name } }] : list.filter((each) => each[ref.field]?.name !== ref.name));
  return html`<${Card} title="Models"><fieldset class="field"><legend class="visually-hidden">Models</legend>${refs.length ? html`<div class="checks">${refs.map((ref) => html`<label key=${ref.field + ref.name}><input type="checkbox" checked=${has(ref)} onChange=${(event) => toggle(ref, event.target.checked)}/>${visibleText(ref.name)} <span class="quiet">${ref.field === 'providerRef' ? 'provider' : 'model server'}</span></label>`)}</div>` : html`<span class="quiet">Its namespace has no provider and no model server.</span>`}<div class="help">${help}</div>${error ? html`<span class="wrong">${visibleText(error)}</span>` : ''}</fieldset></${Card}>`;
}

function Volumes({ doc, set, schema, causes }) {
  const path = ['spec', 'template', 'volumes'];
  const list = at(doc, path) ?? [];
  const put = (index, name, value) => set(path, list.map((each, i) => (i === index ? withValue(each, [name], value === '' && name !== 'name' ? undefined : value) : each)));
  const { workspace } = doc.spec;
  const one = (index, name) => ({ schema: { ...schemaAt(schema, [...path, index, name]), description: '' }, error: causes[`spec.template.volumes.${index}.${name}`], value: list[index][name], onChange: (value) => put(index, name, value) });
  return html`<${Card} title="Volumes" actions=${html`<${Button} icon="plus" onClick=${() => set(path, [...list, { name: '', mountPath: '', size: '1Gi' }])}>Volume</${Button}>`}>
    <p class="help quiet">${helpOf(schemaAt(schema, path))} A change recreates the container.</p>
    <div class="lines gap">${list.map((each, index) => html`<div class="line" key=${index}>
      <${Input} label="Source (volume)" ...${one(index, 'name')} placeholder="data"/><${Input} label="Target" ...${one(index, 'mountPath')} placeholder="/data"/><${Input} label="Size" ...${one(index, 'size')} placeholder="1Gi"/>
      <label class="check"><input type="checkbox" checked=${Boolean(each.readOnly)} onChange=${(event) => put(index, 'readOnly', event.target.checked || undefined)}/>Read-only</label>
      <${Button} icon="trash" tone="ghost" aria-label="Remove volume ${visibleText(each.name)}" onClick=${() => set(path, list.filter((_, i) => i !== index))}/></div>`)}</div>
    <div class="cols gap"><${Input} label="Workspace folder of this host" schema=${schemaAt(schema, ['spec', 'workspace', 'hostPath'])} error=${causes['spec.workspace.hostPath'] ?? causes['spec.workspace']} value=${workspace?.hostPath} placeholder="none" onChange=${(value) => set(['spec', 'workspace'], value ? { ...(workspace ?? {}), hostPath: value } : undefined)}/>
      <${Field} label="Workspace read-only" help=${helpOf(schemaAt(schema, ['spec', 'workspace', 'readOnly']))}>${(props) => html`<input type="checkbox" class="switch" role="switch" ...${props} disabled=${!workspace} checked=${Boolean(workspace?.readOnly)} onChange=${(event) => set(['spec', 'workspace', 'readOnly'], event.target.checked)}/>`}</${Field}></div></${Card}>`;
}

function Environment({ doc, set, schema, causes }) {
  const path = ['spec', 'template', 'env'];
  const list = at(doc, path) ?? [];
  const put = (index, name, value) => set(path, list.map((each, i) => (i === index ? { ...each, [name]: value } : each)));
  return html`<${Card} title="Environment" actions=${html`<${Button} icon="plus" onClick=${() => set(path, [...list, { name: '', value: '' }])}>Variable</${Button}>`}>
    <p class="help quiet">${helpOf(schemaAt(schema, path))}</p>
    <div class="lines gap">${list.map((each, index) => html`<div class="line two" key=${index}><${Input} label="Name" schema=${{}} value=${each.name} error=${causes[`spec.template.env.${index}.name`]} onChange=${(value) => put(index, 'name', value)} placeholder="NAME"/><${Input} label="Value" schema=${{}} value=${each.value} error=${causes[`spec.template.env.${index}.value`]} onChange=${(value) => put(index, 'value', value)}/>
      <${Button} icon="trash" tone="ghost" aria-label="Remove variable ${visibleText(each.name)}" onClick=${() => set(path, list.filter((_, i) => i !== index))}/></div>`)}</div></${Card}>`;
}

/** A command as one line: plain words, and JSON strings for the others. */
export const words = (command) => (command ?? []).map((each) => (/^[^\s"']+$/.test(each) ? each : JSON.stringify(each))).join(' ');
export function unwords(text) {
  const found = text.match(/"(?:[^"\\]|\\.)*"|'[^']*'|\S+/g);
  if (!found) return text ? [text] : undefined;
  return found.map((each) => {
    if (each.startsWith('"') && each.endsWith('"') && each.length > 1) { try { return JSON.parse(each); } catch { return each; } }
    return each.startsWith("'") && each.endsWith("'") && each.length > 1 ? each.slice(1, -1) : each;
  });
}
