// Usage of one sandbox: the last hour as the daemon has it, and live. uPlot draws; the figures stand beside it as text.
import { bytes, html, quantity, useEffect, useRef, useState } from '../lib.js';
import { call, ended, recovered, sandboxPath, sleep } from '../api.js';
import { Card, ErrorNote } from '../ui.js';

const SPAN_SECONDS = 3600;
const EVERY = 2000;
let loaded = null;
function load() {
  loaded ??= (async () => {
    const sheet = document.createElement('link');
    sheet.rel = 'stylesheet';
    sheet.href = new URL('../vendor/uplot.css', import.meta.url).href;
    document.head.append(sheet);
    return (await import('../vendor/uplot.mjs')).default;
  })();
  return loaded;
}

const rate = (count) => (count == null ? '–' : `${bytes(count)}/s`);
const cores = (count) => (count == null ? '–' : `${count.toFixed(2)} cores`);
// Steps of an axis that read as whole figures: binary ones of bytes, whole ones of processes.
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
const decimal = (least) => Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((digit) => digit * least * 10 ** power)).flat();
const LEAST_SPAN_SECONDS = 60;
const time = (seconds, step) => new Date(seconds * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', ...(step < 60 ? { second: '2-digit' } : {}) });
const CHARTS = [
  { title: 'CPU', least: 0.1, steps: decimal(0.01), series: [['used', (s) => s.cpu]], limit: (l) => quantity(l.cpu), format: cores },
  { title: 'Memory', least: 1 << 20, steps: BINARY, series: [['used', (s) => s.memory]], limit: (l, s) => s?.memoryLimit ?? quantity(l.memory), format: bytes },
  { title: 'Network', least: 1024, steps: BINARY, series: [['received', (s) => s.received], ['sent', (s) => s.sent]], format: rate },
  { title: 'Disk', least: 1024, steps: BINARY, series: [['read', (s) => s.read], ['written', (s) => s.written]], format: rate },
  { title: 'Processes (PIDs)', least: 4, steps: decimal(1), series: [['running', (s) => s.pids]], limit: (l) => Number(l.pids), format: (n) => (n == null ? '–' : String(Math.round(n))) },
];

/** A change of counters as a rate; null without network or right after a restart. */
function rateOf(now, before, name, seconds) {
  const [a, b] = [now.usage[name], before?.usage[name]];
  return a == null || b == null || a < b || seconds <= 0 ? null : (a - b) / seconds;
}

function sampleOf(now, before) {
  const time = Date.parse(now.timestamp) / 1000;
  const seconds = before ? time - Date.parse(before.timestamp) / 1000 : 0;
  const { usage } = now;
  const of = (name) => rateOf(now, before, name, seconds);
  return { time, cpu: usage.cpuPercent / 100, memory: usage.memoryUsageBytes, memoryLimit: usage.memoryLimitBytes, pids: usage.processes, received: of('networkReceiveBytes'), sent: of('networkTransmitBytes'), read: of('diskReadBytes'), written: of('diskWriteBytes') };
}

export default function Charts({ namespace, name, object }) {
  const [samples, set] = useState([]);
  const [error, setError] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    let before = null;
    set([]);
    (async () => {
      try { // what the daemon remembers, half a minute apart
        const past = await call(sandboxPath(namespace, name, 'metrics/history'), { signal: stop.signal });
        set(past.items.map((sample, index) => sampleOf(sample, past.items[index - 1])));
        before = past.items.at(-1) ?? null;
      } catch (failed) { if (stop.signal.aborted || ended(failed)) return; }
      while (!stop.signal.aborted) {
        try {
          const now = document.hidden ? null : await call(sandboxPath(namespace, name, 'metrics'), { signal: stop.signal });
          if (now && now.timestamp !== before?.timestamp) {
            const made = sampleOf(now, before);
            before = now;
            set((old) => [...old, made].filter((sample) => sample.time > made.time - SPAN_SECONDS));
          }
          setError(null);
        } catch (failed) {
          if (stop.signal.aborted || ended(failed)) return;
          if (failed.status === 0 || failed.status === 502) await recovered(); else setError(failed);
        }
        await sleep(EVERY);
      }
    })();
    return () => stop.abort();
  }, [namespace, name]);
  const limits = object.status?.resources?.limits ?? {};
  return html`<${ErrorNote} error=${error}/><div class="charts">${CHARTS.map((each) => html`<${Chart} key=${each.title} chart=${each} samples=${samples} limits=${limits}/>`)}</div>
    <p class="quiet gap">The last hour as the daemon remembers it, a sample each half minute since it started; every two seconds while this page is open. Prometheus has what was before. 1 core is one busy processor.</p>`;
}

function Chart({ chart, samples, limits }) {
  const holder = useRef();
  const plot = useRef(null);
  const last = samples.at(-1);
  const most = chart.limit?.(limits, last);
  const bounded = most > 0 && Number.isFinite(most);
  const data = [samples.map((each) => each.time), ...chart.series.map(([, value]) => samples.map((each) => value(each) ?? null)), ...(chart.limit ? [samples.map(() => (bounded ? most : null))] : [])];
  useEffect(() => {
    let over = false;
    let observer;
    const element = holder.current;
    load().then((uPlot) => {
      if (over) return;
      const style = getComputedStyle(document.documentElement);
      const axis = { stroke: style.getPropertyValue('--quiet'), grid: { stroke: style.getPropertyValue('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' };
      const colours = ['#1b9e8f', '#c77d1e'];
      plot.current = new uPlot({
        width: element.clientWidth, height: 170, legend: { show: false }, cursor: { y: false },
        scales: { x: { range: (_, low, high) => (high == null ? [0, LEAST_SPAN_SECONDS] : [Math.min(low, high - LEAST_SPAN_SECONDS), high]) }, y: { range: (_, low, high) => [0, Math.max(high ?? 0, chart.least) * 1.1] } },
        axes: [{ ...axis, space: 90, values: (_, marks, at, room, step) => marks.map((each) => time(each, step)) }, { ...axis, size: 78, incrs: chart.steps, values: (_, marks) => marks.map((each) => chart.format(each)) }],
        series: [{}, ...chart.series.map(([label], at) => ({ label, stroke: colours[at], width: 1.8, fill: at ? undefined : `${colours[at]}22`, points: { show: false } })), ...(chart.limit ? [{ label: 'limit', stroke: '#d4504a', dash: [5, 4], width: 1.3, points: { show: false } }] : [])],
      }, data, element);
      observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: 170 }));
      observer.observe(element);
    });
    return () => { over = true; observer?.disconnect(); plot.current?.destroy(); plot.current = null; };
  }, []);
  useEffect(() => { plot.current?.setData(data); }, [samples]);
  return html`<${Card} title=${chart.title} actions=${html`<div class="legend">${chart.series.map(([label, value], at) => html`<span key=${label}><span class="swatch ${'ab'[at]}"></span>${label} <b>${last ? chart.format(value(last)) : '–'}</b></span>`)}${bounded ? html`<span><span class="swatch limit"></span>limit <b>${chart.format(most)}</b></span>` : ''}</div>`}>
    <div class="chart" ref=${holder} data-samples=${samples.length} role="img" aria-label="${chart.title}: ${last ? chart.series.map(([label, value]) => `${label} ${chart.format(value(last))}`).join(', ') : 'no sample yet'}${bounded ? `, limit ${chart.format(most)}` : ''}"></div></${Card}>`;
}
