// A text editor for YAML: line numbers, marks at the lines that were refused, and completion from the JSON Schema.
import { html, useLayoutEffect, useMemo, useRef, useState, visibleText } from '../lib.js';

const MOST_CHOICES = 40;
const KEY = /^(\s*)((?:- +)*)"?([A-Za-z0-9_./-]+)"?:(?=\s|$)/;
const LIST = 'completions';

/** The schema of what stands in a list, or of a map's values; the schema itself otherwise. */
function inner(schema) {
  if (schema?.type === 'array') return inner(schema.items);
  return schema?.properties ? schema : (schema?.anyOf ?? []).find((variant) => variant.properties) ?? schema;
}

/** The schema at names below a document's; lists are passed through. */
function schemaOf(schema, names) {
  let current = inner(schema);
  for (const name of names) {
    const values = current?.additionalProperties || Object.values(current?.patternProperties ?? {})[0];
    current = inner(current?.properties?.[name] ?? (typeof values === 'object' ? values : undefined));
  }
  return current;
}

/** A line's parts: where its dashes and its key begin, and the key. */
function partsOf(line) {
  const [, indent, dashes] = /^(\s*)((?:- +|-$)*)/.exec(line);
  return { start: indent.length, column: indent.length + dashes.length, dashed: dashes !== '', key: KEY.exec(line)?.[3] };
}

/** The names of the maps around a line, and the names that stand beside it already. */
function placeOf(lines, at, { start, column, dashed }) {
  const names = [];
  const present = new Set();
  let bound = dashed ? start + 1 : column;
  let siblings = !dashed;
  for (let row = at - 1; row >= 0; row -= 1) {
    if (!lines[row].trim() || lines[row].trim().startsWith('#')) continue;
    const line = partsOf(lines[row]);
    if (line.key && line.column < bound) {
      names.unshift(line.key);
      bound = line.dashed ? line.start + 1 : line.column;
      siblings = false;
      continue;
    }
    if (siblings && line.key && line.column === column) present.add(line.key);
    if (line.dashed && line.start < bound) { // it begins the item that is around
      bound = line.start + 1;
      siblings = false;
    }
  }
  for (let row = at + 1; row < lines.length; row += 1) {
    if (!lines[row].trim()) continue;
    const line = partsOf(lines[row]);
    if (line.column < column || (line.dashed && line.column === column)) break;
    if (line.column === column && line.key) present.add(line.key);
  }
  return { names, present };
}

const closing = (schema, pad) => {
  const shape = schema?.type ?? (schema?.properties ? 'object' : '');
  if (shape === 'object') return `:\n${pad}  `;
  if (shape === 'array') return `:\n${pad}  - `;
  return ': ';
};

/** The choices at a place of a text: {prefix, choices: [{text, detail, insert}]}, null where there are none. */
export function completions(text, caret, schema) {
  const before = text.slice(0, caret).split('\n');
  const row = before.length - 1;
  const line = partsOf(before[row]);
  const typed = before[row].slice(line.column);
  const lines = text.split('\n');
  const value = /^"?([A-Za-z0-9_./-]+)"?:\s+"?([A-Za-z0-9_./-]*)$/.exec(typed);
  const { names, present } = placeOf(lines, row, line);
  const prefix = value ? value[2] : typed;
  if (!value && !/^[A-Za-z0-9_./-]*$/.test(typed)) return null;
  const around = schemaOf(schema, value ? [...names, value[1]] : names);
  const literals = around?.enum ?? (around?.const !== undefined ? [around.const] : around?.type === 'boolean' ? [true, false] : []);
  const choices = value || (line.dashed && literals.length)
    ? literals.map((literal) => ({ text: String(literal), detail: around.default === literal ? 'the default' : '', insert: String(literal) }))
    : Object.entries(around?.properties ?? {}).filter(([name]) => !present.has(name) && !(name === 'status' && !names.length))
      .map(([name, field]) => ({ text: name, detail: `${(around.required ?? []).includes(name) ? 'required. ' : ''}${String(field.description ?? '').replaceAll('`', '')}`, insert: name + closing(field, ' '.repeat(line.column)) }));
  const lower = prefix.toLowerCase();
  const rank = (choice) => (choice.text.toLowerCase().startsWith(lower) ? 0 : choice.text.toLowerCase().includes(lower) ? 1 : 2);
  const fitting = choices.filter((choice) => rank(choice) < 2 && choice.text !== prefix).sort((one, two) => rank(one) - rank(two)).slice(0, MOST_CHOICES);
  return fitting.length ? { prefix, choices: fitting } : null;
}

/** The lines that an error of the daemon names: line -> message. */
function refusedLines(error) {
  return new Map((error?.causes ?? []).filter((cause) => cause.line > 0).map((cause) => [cause.line, cause.message]));
}

/** `error`: the daemon's refusal of the text. Ctrl+Space, or typing, offers names and values of the schema. */
export function YamlEditor({ value, onInput, schema, error }) {
  const area = useRef();
  const gutter = useRef();
  const popup = useRef();
  const [offer, setOffer] = useState(null);
  const [at, setAt] = useState(0);
  const count = useMemo(() => value.split('\n').length, [value]);
  const refused = useMemo(() => refusedLines(error), [error]);
  const look = (always) => {
    const { selectionStart: caret, selectionEnd, value: text } = area.current;
    const next = schema && caret === selectionEnd ? completions(text, caret, schema) : null;
    setAt(0);
    setOffer(next && (always || next.prefix) ? { ...next, caret } : null);
  };
  const insert = (text, from) => {
    area.current.setSelectionRange(from, area.current.selectionEnd);
    if (!document.execCommand('insertText', false, text)) { // keeps the browser's undo, where there is one
      area.current.setRangeText(text, from, area.current.selectionEnd, 'end');
      onInput(area.current.value);
    }
  };
  const choose = (choice) => {
    insert(choice.insert, offer.caret - offer.prefix.length);
    setOffer(null);
    area.current.focus();
  };
  const key = (event) => {
    if (event.key === ' ' && event.ctrlKey) { event.preventDefault(); look(true); return; }
    if (offer) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) { event.preventDefault(); setAt((at + step + offer.choices.length) % offer.choices.length); return; }
      if (event.key === 'Enter' || event.key === 'Tab') { event.preventDefault(); choose(offer.choices[at]); return; }
      if (event.key === 'Escape') { event.preventDefault(); event.stopPropagation(); setOffer(null); return; }
    }
    if (event.key === 'Enter' && !event.isComposing && !event.ctrlKey && !event.metaKey) { // a new line begins where this one does
      event.preventDefault();
      const line = area.current.value.slice(0, area.current.selectionStart).split('\n').at(-1);
      insert(`\n${' '.repeat(partsOf(line).column + (/:\s*$/.test(line) ? 2 : 0))}`, area.current.selectionStart);
    }
  };
  useLayoutEffect(() => { // beside the caret: every letter has the same width
    if (!offer) return;
    const style = getComputedStyle(area.current);
    const ruler = document.createElement('canvas').getContext('2d');
    ruler.font = style.font;
    const before = area.current.value.slice(0, offer.caret).split('\n');
    const top = before.length * parseFloat(style.lineHeight) + parseFloat(style.paddingTop) - area.current.scrollTop;
    const left = area.current.offsetLeft + parseFloat(style.paddingLeft) + (before.at(-1).length - offer.prefix.length) * ruler.measureText('m').width - area.current.scrollLeft;
    const room = area.current.parentElement.clientWidth - popup.current.offsetWidth;
    popup.current.style.top = `${Math.max(0, top + 2)}px`;
    popup.current.style.left = `${Math.max(0, Math.min(left, room))}px`;
    popup.current.children[at]?.scrollIntoView({ block: 'nearest' });
  }, [offer, at]);
  const scroll = () => { gutter.current.scrollTop = area.current.scrollTop; setOffer(null); };
  useLayoutEffect(() => { gutter.current.scrollTop = area.current.scrollTop; });
  return html`<div class="editor"><div class="gutter" ref=${gutter} aria-hidden="true">${refused.size ? Array.from({ length: count }, (_, index) => html`<div key=${index} class=${refused.has(index + 1) ? 'refused' : ''} title=${refused.get(index + 1)}>${index + 1}</div>`) : Array.from({ length: count }, (_, index) => index + 1).join('\n')}</div>
    <textarea ref=${area} class="code" spellcheck="false" autocapitalize="off" aria-label="YAML" wrap="off" aria-autocomplete=${schema ? 'list' : undefined} aria-controls=${offer ? LIST : undefined} aria-activedescendant=${offer ? `${LIST}-${at}` : undefined}
      value=${value} onInput=${(event) => { onInput(event.target.value); look(false); }} onKeyDown=${key} onScroll=${scroll} onBlur=${() => setOffer(null)} onClick=${() => setOffer(null)}></textarea>
    ${offer ? html`<ul class="choicelist" id=${LIST} ref=${popup} role="listbox" aria-label="Completions">${offer.choices.map((choice, index) => html`<li key=${choice.text} id="${LIST}-${index}" role="option" aria-selected=${String(index === at)} onPointerDown=${(event) => { event.preventDefault(); choose(choice); }}><code>${choice.text}</code><span class="quiet">${visibleText(choice.detail)}</span></li>`)}</ul>` : ''}</div>
    ${schema ? html`<p class="quiet help narrow-hide">Ctrl+Space offers the fields and values that fit.</p>` : ''}`;
}
