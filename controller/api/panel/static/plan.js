// Apply with the plan first: what would change, how it takes effect, the engine calls, the quotas; then the write.
import { copyOf, differences, html, mergePatch, quantity, readable, shown, useEffect, useState, visibleText } from './lib.js';
import { ApiError, call, ended, pathOf } from './api.js';
import { Button, Dialog, ErrorNote, Icon, Meter, toast } from './ui.js';
import { filesText } from './words.js';
import { written } from './yaml.js';

const MERGE = 'application/merge-patch+json';
const EFFECTS = { live: 'at once, while it runs', recreate: 'recreates the container', restart: 'restarts it', refused: 'refused', 'at next start': 'at its next start' };

/**
 * The plan for a whole document (text of YAML or JSON): the one item of the diff. Throws ApiError.
 * While the engine can't be observed, it has no engine calls and quotas, and says so in `unplanned`.
 */
export async function planOf(text, namespace) {
  const diff = (plan) => call('diff', { method: 'POST', body: { documents: [{ file: 'panel', text }], namespace: namespace || null, plan, replace: true } });
  let unplanned = '';
  const found = await diff(true).catch((error) => {
    if (error.status !== 503) throw error;
    unplanned = error.message;
    return diff(false);
  });
  if (found.items.length !== 1) throw new ApiError(400, 'BadRequest', `this text has ${found.items.length} documents; write one`);
  return { ...found.items[0], unplanned };
}

const parts = (object) => ({ labels: object.metadata.labels ?? {}, annotations: object.metadata.annotations ?? {}, spec: object.spec ?? {} });

/**
 * The dialog. `text` is the document; `base` the object that it was made from, null for a new one.
 * `onDone(object)` after the write; `onRebase(newer)` when the object had changed meanwhile.
 */
export function PlanDialog({ kind, text, base, onClose, onDone, onRebase }) {
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [newer, setNewer] = useState(null);
  useEffect(() => {
    planOf(text, base?.metadata.namespace).then(setPlan, async (failed) => { if (!ended(failed)) await refused(failed); });
  }, []);
  async function refused(failed) {
    if (failed.status === 409 && base) {
      try {
        const now = await call(pathOf(kind, base.metadata.namespace, base.metadata.name));
        if (now.metadata.resourceVersion !== base.metadata.resourceVersion) setNewer(now);
      } catch { /* the first error says enough */ }
    }
    setError(failed);
  }
  const apply = async () => {
    setBusy(true);
    setError(null);
    try {
      const { after } = plan;
      let made;
      if (base) {
        const from = { metadata: { labels: parts(base).labels, annotations: parts(base).annotations }, spec: base.spec };
        const to = { metadata: { labels: parts(after).labels, annotations: parts(after).annotations }, spec: after.spec };
        const patch = { ...mergePatch(from, to) };
        patch.metadata = { ...(patch.metadata ?? {}), resourceVersion: base.metadata.resourceVersion };
        made = await call(pathOf(kind, base.metadata.namespace, base.metadata.name), { method: 'PATCH', type: MERGE, body: JSON.stringify(patch) });
      } else {
        made = await call(pathOf(kind, after.metadata.namespace), { method: 'POST', body: written(after) });
      }
      toast(`${kind.kind} ${made.metadata.name}: ${base ? 'changes applied' : 'created'}`);
      onDone(made);
    } catch (failed) {
      if (!ended(failed)) await refused(failed);
      setBusy(false);
    }
  };
  const nothing = plan && base && plan.result === 'unchanged';
  const refusedBy = plan?.changes.some((each) => each.effect === 'refused');
  const recreated = base && kind.kind === 'Sandbox' && plan?.changes.some((each) => each.effect === 'recreate');
  const footer = html`<${Button} onClick=${onClose}>Back</${Button}>${newer ? html`<${Button} tone="primary" onClick=${() => onRebase(newer)}>Take my changes onto the new version</${Button}>` : html`<${Button} tone="primary" disabled=${!plan || busy || nothing || error} onClick=${apply}>${base ? 'Apply' : 'Create'}</${Button}>`}`;
  return html`<${Dialog} title=${base ? `Apply to ${base.metadata.name}` : `Create ${kind.kind}`} wide=${true} onClose=${onClose} footer=${footer}>
    <${ErrorNote} error=${error}/>
    ${newer ? html`<section class="section"><h3>Changed meanwhile, by somebody else</h3><${ChangeTable} changes=${differences(parts(base), parts(newer)).map(([field, before, after]) => ({ field, before, after }))} empty="Only its status."/></section>` : ''}
    ${!plan && !error ? html`<p class="quiet">Planning…</p>` : ''}
    ${plan && !newer ? html`<${PlanView} plan=${plan} created=${!base} nothing=${nothing}/>` : ''}
    ${recreated ? html`<div class="note warn"><${Icon} name="warn"/><span>It gets a new container. ${visibleText(filesText(base, false))}</span></div>` : ''}
    ${refusedBy ? html`<div class="note bad"><${Icon} name="warn"/>The planner would refuse this; the object can be stored, and says so in its conditions.</div>` : ''}
  </${Dialog}>`;
}

export function PlanView({ plan, created, nothing }) {
  const forecasts = plan.plans ?? [];
  const calls = forecasts.flatMap((each) => each.calls.map((one) => ({ ...one, object: each.object })));
  const waits = forecasts.filter((each) => each.reason && each.message);
  const quotas = (plan.quotas ?? []).map((each) => ({ ...each, used: each.used.filter((one) => one.before !== one.after) })).filter((each) => each.used.length);
  return html`
    ${nothing ? html`<div class="note"><${Icon} name="ok"/>Nothing would change.</div>` : ''}
    ${created ? '' : html`<section class="section"><h3>Changes</h3><${ChangeTable} changes=${plan.changes} empty="No field changes."/></section>`}
    ${plan.unplanned ? html`<div class="note warn"><${Icon} name="warn"/><span>Engine calls and quotas can’t be forecast now: ${visibleText(plan.unplanned)}. What you apply is stored, and carried out once it can be.</span></div>` : html`<section class="section"><h3>Engine calls</h3>${calls.length ? html`<ul class="calls">${calls.map((each) => html`<li><code>${visibleText(each.call)}</code><span class="quiet">${visibleText(each.why)}</span></li>`)}</ul>` : html`<p class="quiet">None.</p>`}
      ${waits.map((each) => html`<div class="note warn"><${Icon} name="clock"/><span><b>${visibleText(each.reason)}</b>: ${visibleText(each.message)}</span></div>`)}</section>
    <section class="section"><h3>Quota afterwards</h3>${quotas.length ? quotas.map((each) => html`<div key=${each.quota}><b>${visibleText(each.quota)}</b><table class="plain"><tbody>${each.used.map((one) => html`<tr key=${one.resource}><td>${one.resource}</td><td class="num">${shown(one.before)} <span class="arrow">→</span> ${shown(one.after)}</td><td>${one.hard ? html`<${Meter} label=${one.resource} used=${quantity(one.after)} most=${quantity(one.hard)} text="of ${readable(one.hard)}"/>` : html`<span class="quiet">no limit</span>`}</td></tr>`)}</tbody></table></div>`) : html`<p class="quiet">No quota is touched.</p>`}</section>`}`;
}

function ChangeTable({ changes, empty }) {
  if (!changes.length) return html`<p class="quiet">${empty}</p>`;
  return html`<table class="plain effects"><thead><tr><th>Field</th><th>Before → after</th><th>Effect</th></tr></thead><tbody>${changes.map((each) => html`<tr key=${each.field}>
    <td><code>${visibleText(each.field)}</code></td><td><code class="old">${shown(each.before)}</code><span class="arrow">→</span><code>${shown(each.after)}</code></td>
    <td>${each.effect ? html`<span class="badge ${each.effect.split(' ')[0]}">${each.effect}</span><div class="quiet">${visibleText(each.why || EFFECTS[each.effect] || '')}</div>` : ''}</td></tr>`)}</tbody></table>`;
}

/** What my edit changed, laid over a newer object. */
export function rebased(base, edited, newer) {
  const patch = mergePatch(parts(base), parts(edited));
  const merged = merge(parts(newer), patch);
  const made = copyOf(newer);
  made.metadata.labels = merged.labels;
  made.metadata.annotations = merged.annotations;
  made.spec = merged.spec;
  return made;
}

function merge(target, patch) {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch;
  const made = typeof target === 'object' && target !== null && !Array.isArray(target) ? { ...target } : {};
  for (const [name, value] of Object.entries(patch)) if (value === null) delete made[name]; else made[name] = merge(made[name], value);
  return made;
}
