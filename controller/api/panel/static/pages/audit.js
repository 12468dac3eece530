// The audit log: who did what, and whether the hash chain of each writer, a daemon, holds.
import { html, useMemo, useState, visibleText, when } from '../lib.js';
import { call, usePolled } from '../api.js';
import { Button, DataTable, ErrorNote, Icon, Status } from '../ui.js';
import { SearchBox } from './list.js';

export default function Audit() {
  const [text, setText] = useState('');
  const [limit, setLimit] = useState(500);
  const [report, setReport] = useState(null);
  const { value, error } = usePolled((signal) => call('audit', { signal, query: { limit: String(limit) } }), 5000, [limit]);
  const rows = useMemo(() => [...(value?.items ?? [])].reverse(), [value]);
  const places = useMemo(() => new Map((value?.items ?? []).map((each, place) => [each, place])), [value]);
  const several = new Set(rows.map((each) => each.writer)).size > 1;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = useMemo(() => rows.filter((each) => { const all = JSON.stringify(each).toLowerCase(); return words.every((one) => all.includes(one)); }), [rows, text]);
  const target = (each) => [each.object.kind, [each.object.namespace, each.object.name].filter(Boolean).join('/')].filter(Boolean).join(' ');
  const verify = async () => { try { setReport(await call('audit/verify')); } catch (failed) { setReport({ problem: failed.message }); } };
  return html`<div class="head"><div class="title"><h1 tabindex="-1">Audit</h1></div><${Button} icon="shield" onClick=${verify}>Verify the log</${Button}></div>
    ${report ? html`<div class="note ${report.problem ? 'bad' : 'ok'}" role="status"><${Icon} name=${report.problem ? 'bad' : 'ok'}/>${report.problem ? visibleText(report.problem) : `All ${report.entries} entries${report.chains.length > 1 ? ` of ${report.chains.length} chains` : ''} are as they were written.`}</div>` : ''}
    <div class="tools"><${SearchBox} label="Search" value=${text} onInput=${setText}/><select aria-label="Entries" value=${limit} onChange=${(event) => setLimit(Number(event.target.value))}>${[500, 2000, 10000].map((each) => html`<option key=${each} value=${each}>Newest ${each}</option>`)}</select></div><${ErrorNote} error=${error}/>
    ${!value ? (error ? '' : html`<p class="quiet">Loading…</p>`) : html`<${DataTable} label="Audit" rows=${found} rowKey=${(row) => `${row.writer}/${row.id}`} initialSort=${{ key: 'time', down: true }} empty="Nothing matches." columns=${[
      { key: 'time', title: 'Time', value: (row) => places.get(row), cell: (row) => html`<time datetime=${row.time}>${when(row.time)}</time>` },
      ...(several ? [{ key: 'writer', title: 'Writer', value: (row) => row.writer, cell: (row) => visibleText(row.writer || '–') }] : []),
      { key: 'actor', title: 'Who', value: (row) => row.actor, cell: (row) => html`<span title=${visibleText(row.source)}>${visibleText(row.actor)}</span>` },
      { key: 'verb', title: 'Verb', value: (row) => row.verb, cell: (row) => visibleText(row.verb) },
      { key: 'object', title: 'Object', value: target, cell: (row) => visibleText(target(row)) },
      { key: 'outcome', title: 'Outcome', value: (row) => row.outcome, cell: (row) => html`<${Status} word=${row.outcome} tone=${/allow|ok|success|done/i.test(row.outcome) ? 'ok' : /refus|den|fail/i.test(row.outcome) ? 'bad' : 'idle'}/>` },
      { key: 'detail', title: 'Detail', hide: 'narrow-hide', cell: (row) => { const shown = visibleText(Object.keys(row.detail).length ? JSON.stringify(row.detail) : ''); return html`<code title=${shown}>${shown}</code>`; } },
    ]}/>`}`;
}
