// A document as a form and as YAML. Both show the plan before anything is written.
import { copyOf, html, useMemo, useState, withValue } from '../lib.js';
import { call, ended, useCan, usePolled } from '../api.js';
import { Button, ErrorNote, Icon } from '../ui.js';
import { PlanDialog, rebased } from '../plan.js';
import { toYaml, written } from '../yaml.js';
import { SchemaFields } from './fields.js';
import { YamlEditor } from './editor.js';
import { linkTo } from './list.js';

const unchanged = (doc) => doc;
const withoutVersion = (text) => text.replace(/^ {2}resourceVersion: .*\n/m, '');
const withVersion = (text, version) => text.replace(/^metadata:\n/m, `metadata:\n  resourceVersion: ${JSON.stringify(version)}\n`);

/**
 * `first` is a new document, or the object that is edited. `Fields` is the form: a component of {kind, doc, set, schema,
 * create, causes}. `tidy` removes what a form leaves empty. `onlyText`: without the form.
 */
export function DocumentForm({ kind, first, create, Fields = SchemaFields, tidy = unchanged, onlyText, onDone, onCancel }) {
  const [base, setBase] = useState(create ? null : first);
  const [doc, setDoc] = useState(() => (create ? first : written(copyOf(first))));
  const [view, setView] = useState(onlyText ? 'yaml' : 'form');
  const [text, setText] = useState(() => (onlyText ? toYaml(doc) : ''));
  const [planning, setPlanning] = useState(null);
  const [error, setError] = useState(null);
  const schema = usePolled(() => fetch(`/panel/schema/${kind.name}.json`).then((answer) => answer.json()), 0, [kind]).value;
  const namespace = kind.namespaced ? doc.metadata.namespace ?? 'default' : null;
  const allowed = useCan(create ? 'create' : 'update', kind.kind, namespace, create ? '' : doc.metadata.name);
  const set = (path, value) => { setError(null); setDoc((old) => withValue(old, path, value)); };
  const causes = useMemo(() => Object.fromEntries((error?.causes ?? []).map((cause) => [String(cause.field).replace(/\[(\d+)\]/g, '.$1'), cause.message])), [error]);

  // The daemon reads the text, by its rules.
  const diff = (whole) => call('diff', { method: 'POST', body: { documents: [{ file: 'panel', text: whole }], namespace, replace: true } });
  const parsed = async () => written((await diff(withoutVersion(text))).items[0].after);
  const show = async (next) => {
    if (next === view) return;
    setError(null);
    if (next === 'yaml') { setText(toYaml(tidy(doc))); setView('yaml'); return; }
    try { setDoc(await parsed()); setView('form'); } catch (failed) { if (!ended(failed)) setError(failed); }
  };
  const review = async () => {
    setError(null);
    const version = base?.metadata.resourceVersion;
    const clean = tidy(doc);
    const whole = view === 'yaml' ? (version ? withVersion(text, version) : text) : JSON.stringify(version ? { ...clean, metadata: { ...clean.metadata, resourceVersion: version } } : clean);
    try {
      await diff(whole);
    } catch (failed) { // one that changed meanwhile is shown beside the plan
      if (ended(failed)) return;
      if (failed.status !== 409 || !base) { setError(view === 'yaml' && version ? oneLineLess(failed) : failed); return; }
    }
    setPlanning(whole);
  };
  const rebase = async (newer) => {
    try {
      const mine = view === 'yaml' ? await parsed() : doc;
      const next = written(rebased(base, { ...mine, metadata: { ...base.metadata, ...mine.metadata } }, newer));
      setDoc(next);
      if (view === 'yaml') setText(toYaml(next));
      setBase(newer);
    } catch (failed) { if (!ended(failed)) setError(failed); }
    setPlanning(null);
  };
  const done = (object) => {
    setPlanning(null);
    if (onDone) onDone(object);
    else location.hash = linkTo(kind, object.metadata).slice(1);
  };
  return html`${onlyText ? '' : html`<div class="tools" role="group" aria-label="View">${[['form', 'Form'], ['yaml', 'YAML']].map(([name, title]) => html`<${Button} key=${name} aria-pressed=${String(view === name)} tone=${view === name ? 'on' : ''} onClick=${() => show(name)}>${title}</${Button}>`)}</div>`}
    <form class="form" onSubmit=${(event) => { event.preventDefault(); review(); }} novalidate>
      ${!schema ? html`<p class="quiet">Loading…</p>` : view === 'yaml' ? html`<div><${YamlEditor} value=${text} schema=${schema} error=${error} onInput=${(next) => { setError(null); setText(next); }}/></div>`
      : html`<${Fields} kind=${kind} doc=${doc} set=${set} schema=${schema} create=${create} causes=${causes}/>`}
      <${ErrorNote} error=${error}/>
      <div class="row sticky"><button type="submit" class="primary" disabled=${!allowed.allowed || !schema} title=${allowed.reason}><${Icon} name="list"/><span>${create ? 'Review and create' : 'Apply configuration…'}</span></button>${onCancel ? html`<${Button} onClick=${onCancel}>Cancel</${Button}>` : ''}
        <span class="quiet narrow-hide">Shows what would change and how it takes effect; nothing is written before you confirm.</span></div></form>
    ${planning ? html`<${PlanDialog} kind=${kind} text=${planning} base=${base} onClose=${() => setPlanning(null)} onDone=${done} onRebase=${rebase}/>` : ''}`;
}

/** The error without the line of the version, which stands above what the editor shows. */
function oneLineLess(error) {
  error.causes = error.causes.map((cause) => (cause.line > 1 ? { ...cause, line: cause.line - 1 } : cause));
  return error;
}
