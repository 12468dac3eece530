// Fields of a form from a JSON Schema: the controls that all forms share, and the whole form of any kind.
import { html, useState, visibleText, wordsOf } from '../lib.js';
import { Button, Card, Field, Icon } from '../ui.js';

/** The schema at a path below the document: descriptions, bounds, how a change takes effect. */
export function schemaAt(schema, path) {
  let current = schema;
  for (const name of path) current = typeof name === 'number' ? current?.items : current?.properties?.[name];
  return current ?? {};
}

/** The help of a field: its description. */
export const helpOf = (schema) => String(schema.description ?? '').replace(/\s+/g, ' ').replaceAll('`', '');

/** A text field of the schema: its description as help, how it takes effect as a badge. */
export function Input({ label, schema, value, onChange, error, effect, badge, path, wide, ...attributes }) {
  const kind = badge || (effect ? schema['x-paddock-takes-effect'] : '');
  return html`<${Field} label=${label} badge=${kind} help=${helpOf(schema)} error=${error}>${(props) => html`<input ...${props} ...${attributes} value=${value ?? ''} maxlength=${schema.maxLength > 20 ? schema.maxLength : undefined} spellcheck="false" autocomplete="off" onInput=${(event) => onChange(event.target.value)}/>`}</${Field}>`;
}

/** A choice of the schema's; the first is its default. */
export function Select({ label, schema, value, onChange, error, badge, required }) {
  const names = schema.enum ?? [];
  return html`<${Field} label=${label} badge=${badge} help=${helpOf(schema)} error=${error}>${(props) => html`<select ...${props} value=${value ?? ''} onChange=${(event) => onChange(event.target.value || undefined)}>
    <option value="">${schema.default ? `${schema.default} (default)` : required ? 'choose one' : 'as the daemon chooses'}</option>${names.filter((name) => name !== schema.default).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select>`}</${Field}>`;
}

const WORDS = { cpu: 'CPU', gpus: 'GPUs', pids: 'Processes (PIDs)', url: 'URL', env: 'Environment', args: 'Arguments', mcp: 'MCP' };
const labelOf = (name) => {
  const text = WORDS[name] ?? wordsOf(name.charAt(0).toUpperCase() + name.slice(1));
  return text.charAt(0).toUpperCase() + text.slice(1);
};
const EFFECTS = new Set(['recreate', 'restart']); // most fields of most kinds are live
const badgeOf = (schema) => (EFFECTS.has(schema['x-paddock-takes-effect']) ? schema['x-paddock-takes-effect'] : '');

/** The form of a schema's value: text, number, switch, choice, lines, list, map or group. */
function controlOf(schema) {
  if (schema.const !== undefined) return 'fixed';
  if (schema.enum) return 'choice';
  if (schema.anyOf) return schema.anyOf.some((variant) => variant.properties) ? 'json' : 'text';
  if (schema.type === 'boolean') return 'switch';
  if (schema.type === 'integer' || schema.type === 'number') return 'number';
  if (schema.type === 'array') return ['text', 'number', 'choice'].includes(controlOf(schema.items ?? {})) ? 'lines' : 'list';
  if (schema.properties && Object.keys(schema.properties).length) return 'group';
  if (schema.type !== 'object') return schema.type === 'string' ? 'text' : 'json';
  const values = valuesOf(schema);
  return values && controlOf(values) === 'text' ? 'map' : 'json';
}
const valuesOf = (schema) => [schema.additionalProperties, ...Object.values(schema.patternProperties ?? {})].find((each) => typeof each === 'object');
const BLOCKS = new Set(['group', 'list', 'map', 'json']);

/** The shortest value that a schema could take: its required fields. */
export function least(schema) {
  if (schema.default !== undefined) return schema.default;
  if (schema.const !== undefined || schema.enum) return schema.const ?? schema.enum[0];
  const variant = schema.anyOf ?? schema.oneOf;
  if (variant) return least(variant[0]);
  if (schema.type === 'object' || schema.properties) return Object.fromEntries((schema.required ?? []).map((name) => [name, least(schema.properties?.[name] ?? {})]));
  return { array: [], integer: schema.minimum ?? 0, number: schema.minimum ?? 0, boolean: false }[schema.type] ?? '';
}

/** All fields of a kind: its name, and those of its spec from the schema. */
export function SchemaFields({ kind, doc, set, schema, create, causes }) {
  const field = (name) => ({ schema: schemaAt(schema, ['metadata', name]), value: doc.metadata[name], error: causes[`metadata.${name}`], disabled: !create, onChange: (value) => set(['metadata', name], value) });
  return html`<${Card} title=${labelOf(kind.kind)}><div class="cols"><${Input} label="Name" ...${field('name')}/>${kind.namespaced ? html`<${Input} label="Namespace" ...${field('namespace')}/>` : ''}</div></${Card}>
    <${Group} top=${true} schema=${schema.properties?.spec ?? {}} value=${doc.spec} path=${['spec']} set=${set} causes=${causes}/>`;
}

/** The fields of an object: what is required first, plain fields beside each other, then what has parts of its own. */
function Group({ schema, value, path, set, causes, top }) {
  const needed = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties ?? {}).filter(([, each]) => controlOf(each) !== 'fixed').sort(([one], [two]) => needed.has(two) - needed.has(one));
  const plain = fields.filter(([, each]) => !BLOCKS.has(controlOf(each)));
  const blocks = fields.filter(([, each]) => BLOCKS.has(controlOf(each)));
  const props = (name, each) => ({ key: name, name, schema: each, value: value?.[name], path: [...path, name], set, causes, required: needed.has(name) });
  const beside = plain.length ? html`<div class="cols">${plain.map(([name, each]) => html`<${Plain} ...${props(name, each)}/>`)}</div>` : '';
  return html`${top && plain.length ? html`<${Card} title="Settings">${beside}</${Card}>` : beside}${blocks.map(([name, each]) => html`<${Block} ...${props(name, each)}/>`)}`;
}

function Plain({ name, schema, value, path, set, causes, required }) {
  const control = controlOf(schema);
  const label = html`${labelOf(name)}${required ? html` <span class="badge">required</span>` : ''}`;
  const shared = { label, schema, value, badge: badgeOf(schema), error: causes[path.join('.')], onChange: (next) => set(path, next === '' && !required ? undefined : next) };
  if (control === 'choice') return html`<${Select} ...${shared} required=${required}/>`;
  if (control === 'switch') return html`<${Field} label=${label} badge=${shared.badge} help=${helpOf(schema)} error=${shared.error}>${(props) => html`<input type="checkbox" class="switch" role="switch" ...${props} checked=${Boolean(value ?? schema.default)} onChange=${(event) => set(path, event.target.checked === (schema.default ?? false) ? undefined : event.target.checked)}/>`}</${Field}>`;
  if (control === 'lines') {
    const { type } = schema.items ?? {};
    const parse = (text) => text.split('\n').map((line) => (type === 'integer' && /^-?\d+$/.test(line) ? Number(line) : line));
    return html`<${Field} label=${label} badge=${shared.badge} help=${`${helpOf(schema)} One a line.`} error=${shared.error ?? nested(causes, path)}>${(props) => html`<textarea ...${props} rows=${Math.min(8, Math.max(2, (value ?? []).length))} spellcheck="false" placeholder=${(schema.default ?? []).join('\n')} value=${(value ?? []).join('\n')} onInput=${(event) => set(path, event.target.value ? parse(event.target.value) : required ? [] : undefined)}/>`}</${Field}>`;
  }
  if (control === 'text' && String(value ?? '').includes('\n')) return html`<${Field} label=${label} badge=${shared.badge} help=${helpOf(schema)} error=${shared.error}>${(props) => html`<textarea ...${props} rows="6" spellcheck="false" value=${value} onInput=${(event) => shared.onChange(event.target.value)}/>`}</${Field}>`;
  const number = control === 'number';
  return html`<${Input} ...${shared} inputmode=${number ? 'numeric' : 'text'} placeholder=${schema.default === undefined || schema.default === '' ? '' : `${schema.default} (default)`} onChange=${(text) => shared.onChange(number && /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text)}/>`;
}

/** The first message about a part of a field. */
const nested = (causes, path) => Object.entries(causes).find(([field]) => field.startsWith(`${path.join('.')}.`))?.[1];

/** A field with parts of its own, folded while it has no value. */
function Block({ name, schema, value, path, set, causes, required }) {
  const refused = causes[path.join('.')] ?? nested(causes, path);
  const [open, setOpen] = useState(required || value !== undefined);
  const control = controlOf(schema);
  const Part = { group: Group, list: Items, map: Pairs, json: Json }[control];
  return html`<details class="card nested" open=${open || Boolean(refused)} onToggle=${(event) => setOpen(event.target.open)}><summary><b>${labelOf(name)}</b>${required ? html` <span class="badge">required</span>` : ''}${badgeOf(schema) ? html` <span class="badge ${badgeOf(schema)}">${badgeOf(schema)}</span>` : ''} <span class="quiet">${helpOf(schema)}</span></summary>
    ${causes[path.join('.')] ? html`<p class="wrong" role="alert"><${Icon} name="warn" size=${13}/> ${visibleText(causes[path.join('.')])}</p>` : ''}
    ${open || refused ? html`<div class="inside" role="group" aria-label=${labelOf(name)}><${Part} name=${name} schema=${schema} value=${value} path=${path} set=${set} causes=${causes}/></div>` : ''}</details>`;
}

function Items({ name, schema, value, path, set, causes }) {
  const list = value ?? [];
  const items = schema.items ?? {};
  const put = (next) => set(path, next.length ? next : undefined);
  return html`${list.map((each, index) => html`<fieldset key=${index} class="item"><legend><b>${index + 1}</b> <${Button} icon="trash" tone="ghost" aria-label="Remove ${labelOf(name)} ${index + 1}" onClick=${() => put(list.filter((_, other) => other !== index))}/></legend>
      ${controlOf(items) === 'group' ? html`<${Group} schema=${items} value=${each} path=${[...path, index]} set=${set} causes=${causes}/>` : html`<${Json} name=${name} value=${each} path=${[...path, index]} set=${set}/>`}</fieldset>`)}
    <${Button} icon="plus" onClick=${() => put([...list, least(items)])}>Add</${Button}>`;
}

/** A map of names to texts: its rows keep their order, also while a name is being typed. */
function Pairs({ name, value, path, set }) {
  const [rows, setRows] = useState(() => Object.entries(value ?? {}));
  const put = (next) => {
    setRows(next);
    const entries = next.filter(([key]) => key);
    set(path, entries.length ? Object.fromEntries(entries) : undefined);
  };
  const change = (index, row) => put(rows.map((each, other) => (other === index ? row : each)));
  return html`<div class="lines">${rows.map(([key, text], index) => html`<div class="line two" key=${index}><${Input} label="Name" schema=${{}} value=${key} onChange=${(next) => change(index, [next, text])}/><${Input} label="Value" schema=${{}} value=${text} onChange=${(next) => change(index, [key, next])}/>
      <${Button} icon="trash" tone="ghost" aria-label="Remove ${labelOf(name)} ${visibleText(key)}" onClick=${() => put(rows.filter((_, other) => other !== index))}/></div>`)}</div>
    <${Button} icon="plus" onClick=${() => setRows([...rows, ['', '']])}>Add</${Button}>`;
}

/** Any value, as JSON. */
function Json({ name, value, path, set }) {
  const [text, setText] = useState(() => (value === undefined ? '' : JSON.stringify(value, null, 2)));
  const [problem, setProblem] = useState('');
  const change = (next) => {
    setText(next);
    try {
      set(path, next.trim() ? JSON.parse(next) : undefined);
      setProblem('');
    } catch (error) { setProblem(`not JSON yet: ${error.message}`); }
  };
  return html`<${Field} label="${labelOf(name)}, as JSON" error=${problem}>${(props) => html`<textarea ...${props} class="mono" rows="4" spellcheck="false" value=${text} onInput=${(event) => change(event.target.value)}/>`}</${Field}>`;
}
