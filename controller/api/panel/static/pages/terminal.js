// A shell in a sandbox: xterm over the exec WebSocket (Kubernetes' v5.channel frames).
import { html, useEffect, useRef, useState, visibleText } from '../lib.js';
import { recovered, sandboxPath, socket, useCan, who } from '../api.js';
import { Button, ErrorNote } from '../ui.js';

const SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh';
const [STDIN, STDOUT, STDERR, STATUS, RESIZE] = [0, 1, 2, 3, 4];

let loaded = null;
/** Load xterm. Its style elements need the page's nonce, and it has no option for that. */
function load() {
  loaded ??= (async () => {
    const nonce = document.querySelector('meta[name="panel-nonce"]').content;
    const create = document.createElement.bind(document);
    document.createElement = (name, options) => {
      const made = create(name, options);
      if (String(name).toLowerCase() === 'style') made.nonce = nonce;
      return made;
    };
    const sheet = create('link');
    sheet.rel = 'stylesheet';
    sheet.href = new URL('../vendor/xterm.css', import.meta.url).href;
    const ready = new Promise((done) => { sheet.onload = done; sheet.onerror = done; });
    document.head.append(sheet);
    const [{ Terminal }, { FitAddon }] = await Promise.all([import('../vendor/xterm.mjs'), import('../vendor/xterm-addon-fit.mjs'), ready]);
    return { Terminal, FitAddon };
  })();
  return loaded;
}

export default function TerminalTab({ namespace, name }) {
  const holder = useRef();
  const [run, setRun] = useState(0);
  const [over, setOver] = useState('');
  const [error, setError] = useState(null);
  const can = useCan('use', 'Sandbox', namespace, name, 'exec');
  useEffect(() => {
    if (!can.allowed) return undefined;
    let closed = false;
    let stop = () => {};
    setOver('');
    setError(null);
    load().then(({ Terminal, FitAddon }) => {
      if (closed) return;
      const terminal = new Terminal({ cursorBlink: true, fontSize: 13, fontFamily: 'ui-monospace, "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace', scrollback: 5000, screenReaderMode: true, theme: { background: '#10151b', foreground: '#d7dee6', cursor: '#5eead4', selectionBackground: '#2c4a52' } });
      const fit = new FitAddon();
      terminal.loadAddon(fit);
      terminal.open(holder.current);
      fit.fit();
      const query = new URLSearchParams([['command', 'sh'], ['command', '-c'], ['command', SHELL], ['stdin', 'true'], ['tty', 'true'], ['env', 'TERM=xterm-256color']]);
      const ws = socket(sandboxPath(namespace, name, 'exec'), query, 'v5.channel.k8s.io');
      const frame = (channel, data) => {
        const made = new Uint8Array(data.length + 1);
        made[0] = channel;
        made.set(data, 1);
        if (ws.readyState === WebSocket.OPEN) ws.send(made);
      };
      const encoder = new TextEncoder();
      const size = () => frame(RESIZE, encoder.encode(JSON.stringify({ Width: terminal.cols, Height: terminal.rows })));
      let end = '';
      let started = false;
      ws.onopen = () => { started = true; size(); terminal.focus(); };
      ws.onmessage = ({ data }) => {
        const found = new Uint8Array(data);
        if (found[0] === STDOUT || found[0] === STDERR) terminal.write(found.subarray(1));
        else if (found[0] === STATUS) {
          let status = {};
          try { status = JSON.parse(new TextDecoder().decode(found.subarray(1))); } catch { /* ended without one */ }
          const code = status.details?.causes?.find((each) => each.reason === 'ExitCode')?.message;
          end = status.status === 'Success' ? 'The shell has ended.' : code ? `The shell has ended with code ${code}.` : status.message ?? 'The shell has ended.';
        }
      };
      ws.onclose = async ({ code }) => {
        if (closed) return;
        if (code === 1008 || !started) await recovered(); // signed out, or away: the page says so
        if (who.get() && !closed) setOver(end || (started ? 'The connection broke; its shell was killed.' : 'No shell could be opened; see why on the overview.'));
      };
      terminal.onData((text) => frame(STDIN, encoder.encode(text)));
      terminal.onBinary((text) => frame(STDIN, Uint8Array.from(text, (each) => each.charCodeAt(0))));
      terminal.onResize(size);
      const observer = new ResizeObserver(() => fit.fit());
      observer.observe(holder.current);
      stop = () => { observer.disconnect(); ws.close(); terminal.dispose(); };
    }, () => setError(new Error('the terminal could not be loaded; reload the panel')));
    return () => { closed = true; stop(); };
  }, [namespace, name, run, can.allowed]);
  if (!can.allowed) return html`<div class="empty">${can.reason ? visibleText(can.reason) : 'Asking for your permission…'}</div>`;
  return html`<${ErrorNote} error=${error}/>${over ? html`<div class="note"><span class="grow">${visibleText(over)}</span><${Button} onClick=${() => setRun(run + 1)}>New shell</${Button}></div>` : ''}
    <div class="term" ref=${holder} key=${run} role="region" aria-label="Terminal in ${visibleText(name)}"></div><p class="quiet gap">Tab goes to the shell. Leaving this page ends its commands.</p>`;
}
