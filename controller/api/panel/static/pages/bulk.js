// What is done with rows of a list: started, suspended, hibernated, restarted, deleted; each says first what is lost.
import { html, titleOf, useEffect, useState, visibleText } from '../lib.js';
import { call, ended, mayI, pathOf, remove, sandboxPath, sleep } from '../api.js';
import { Button, Confirm, ErrorNote, toast } from '../ui.js';
import { deletionText, keptBySuspension } from '../words.js';

const MERGE = 'application/merge-patch+json';
const AT_ONCE = 4;
const RESTART_SECONDS = 300;
const setState = ({ metadata }, runState) => call(sandboxPath(metadata.namespace, metadata.name), { method: 'PATCH', type: MERGE, body: JSON.stringify({ spec: { runState } }) });
const isSuspended = (object) => object.status?.conditions?.some((each) => each.type === 'Suspended' && each.status === 'True');
const isUnsaved = (object) => object.status?.conditions?.find((each) => each.type === 'FilesKept' && ['TooLarge', 'NotSaved'].includes(each.reason));

/** Stop it, and start it once it has stopped; it is started again whatever happens meanwhile. */
async function restart(object) {
  const { namespace, name } = object.metadata;
  await setState(object, 'Suspended');
  try {
    for (let seconds = 0; ; seconds += 1) {
      const now = await call(sandboxPath(namespace, name));
      if (isSuspended(now)) return;
      const unsaved = isUnsaved(now);
      if (unsaved) throw new Error(`it is not restarted: ${unsaved.message}`);
      if (seconds > RESTART_SECONDS) throw new Error(`it did not stop within ${RESTART_SECONDS} s`);
      await sleep(1000);
    }
  } finally {
    await setState(object, 'Running');
  }
}

const runs = ({ spec }) => spec.runState === 'Running';
const ACTIONS = {
  start: { title: 'Start', icon: 'play', tone: 'primary', fits: (object) => !runs(object), act: (object) => setState(object, 'Running'), about: () => 'Starts it as its spec says.' },
  suspend: { title: 'Suspend', icon: 'idle', fits: runs, act: (object) => setState(object, 'Suspended'), about: (object) => keptBySuspension(object).text },
  hibernate: { title: 'Hibernate', icon: 'disk', fits: runs, act: (object) => setState(object, 'Hibernated'), about: () => 'Freezes its processes, and moves their memory to swap. Nothing is lost, unless the host stops.' },
  restart: { title: 'Restart', icon: 'again', fits: runs, act: restart, about: (object) => keptBySuspension(object).text },
  delete: { title: 'Delete', icon: 'trash', tone: 'danger', verb: 'delete', act: null, about: (object, kind) => deletionText(kind, object) },
};
const namesOf = (kind) => (kind.kind === 'Sandbox' ? Object.keys(ACTIONS) : ['delete']);

/** May the caller do this in the namespaces of all these rows? The first refusal, if not. */
function useCanAll(verb, kind, rows) {
  const [answer, set] = useState({ allowed: false, reason: '' });
  const spaces = [...new Set(rows.map((row) => row.metadata.namespace ?? null))];
  useEffect(() => {
    let over = false;
    Promise.all(spaces.map((namespace) => mayI({ verb, kind: kind.kind, namespace, name: '', subresource: '' })))
      .then((answers) => { if (!over) set(answers.find((each) => !each.allowed) ?? answers[0] ?? { allowed: false, reason: '' }); });
    return () => { over = true; };
  }, [verb, kind, spaces.join(' ')]);
  return answer;
}

/** Buttons for the selected rows, and the dialog of one action. `task` is {action, rows} or null. */
export default function Bulk({ kind, rows, task, onTask, onClear }) {
  const canUpdate = useCanAll('update', kind, rows);
  const canDelete = useCanAll('delete', kind, rows);
  return html`${rows.length ? html`<div class="tools selection" role="group" aria-label="Selection"><b role="status">${rows.length} selected</b>${namesOf(kind).map((name) => {
    const { title, icon, tone, verb } = ACTIONS[name];
    return html`<${Button} key=${name} icon=${icon} tone=${tone === 'danger' ? tone : ''} allowed=${verb ? canDelete : canUpdate} onClick=${() => onTask({ action: name, rows })}>${title}</${Button}>`;
  })}<${Button} tone="ghost" onClick=${onClear}>Clear</${Button}></div>` : ''}
    ${task ? html`<${Ask} kind=${kind} task=${task} onClose=${() => onTask(null)} onDone=${() => { onTask(null); onClear(); }}/>` : ''}`;
}

function Ask({ kind, task, onClose, onDone }) {
  const { title, tone, fits = () => true, about, act } = ACTIONS[task.action];
  const [objects, setObjects] = useState(null);
  const [failures, setFailures] = useState([]);
  const [progress, setProgress] = useState('');
  useEffect(() => {
    each(task.rows, (row) => call(pathOf(kind, row.metadata.namespace, row.metadata.name)).catch((error) => { if (error.status !== 404) throw error; return null; }))
      .then((answers) => { setObjects(answers.filter(({ value }) => value).map(({ value }) => value)); setFailures(answers.filter(({ error }) => error)); });
  }, []);
  const fitting = (objects ?? []).filter(fits);
  const count = task.rows.length;
  const subject = count === 1 ? task.rows[0].metadata.name : `${count} ${titleOf(kind.kind).toLowerCase()}`;
  const go = async () => {
    let finished = 0;
    const step = () => { finished += 1; setProgress(`${finished} of ${fitting.length} done`); };
    const answers = await each(fitting, (object) => (act ? act(object) : remove(kind, object)).finally(step));
    const refused = answers.filter(({ error }) => error);
    setFailures(refused);
    setProgress('');
    if (refused.length) throw new Error(`${refused.length} of ${fitting.length} refused; the others are done`);
    toast(`${subject}: ${title.toLowerCase()} requested`);
    onDone();
  };
  const confirm = task.action !== 'delete' ? '' : count === 1 ? task.rows[0].metadata.name : `delete ${count}`;
  return html`<${Confirm} title=${`${title} ${visibleText(subject)}`} action=${title} tone=${tone ?? 'primary'} confirm=${confirm} onClose=${onClose} onDo=${go} disabled=${!fitting.length}>
    ${!objects ? html`<p class="quiet">Loading…</p>` : !fitting.length ? html`<p>Nothing to do: ${count === 1 ? 'it is' : 'they are'} so already.</p>`
    : html`<ul class="losses">${fitting.map((object) => html`<li key=${object.metadata.uid}><b>${object.metadata.namespace ? `${visibleText(object.metadata.namespace)} / ` : ''}${visibleText(object.metadata.name)}</b><div class="quiet">${visibleText(about(object, kind))}</div></li>`)}</ul>
      ${fitting.length < objects.length ? html`<p class="quiet">${objects.length - fitting.length} more ${objects.length - fitting.length === 1 ? 'is' : 'are'} so already.</p>` : ''}`}
    ${task.action === 'restart' ? html`<p class="quiet">Keep this page open until they have started again.</p>` : ''}
    <p class="quiet" role="status">${progress}</p>
    ${failures.map(({ item, error }) => html`<${ErrorNote} key=${item.metadata.name} error=${{ message: `${item.metadata.name}: ${error.message}` }}/>`)}</${Confirm}>`;
}

/** Do this with each item, some at once: [{item, value} or {item, error}]. Throws what ends the session. */
async function each(items, work) {
  const answers = [];
  const waiting = [...items];
  const next = async () => {
    while (waiting.length) {
      const item = waiting.shift();
      try { answers.push({ item, value: await work(item) }); } catch (error) {
        if (ended(error)) throw error;
        answers.push({ item, error });
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  return answers.sort((one, two) => items.indexOf(one.item) - items.indexOf(two.item));
}
