// The shell: signing in, navigation, routes.
import { h, html, observable, render, titleOf, useEffect, useState, useValue, visibleText } from './lib.js';
import { ApiError, ended, exchange, farewell, hasToken, kinds, link, recovered, signIn, signOut, who } from './api.js';
import { Button, ErrorNote, fail, Icon, Toasts } from './ui.js';
import { KindPage } from './pages/list.js';

const NAV = [
  ['Workloads', ['sandboxes', 'sandboxsnapshots', 'sandboxpools', 'sandboxtemplates', 'volumes', 'instances']],
  ['Agents', ['mcpservers', 'models', 'workflows', 'workflowruns', 'projects', 'plugins']],
  ['Limits', ['quotas', 'hostquotas', 'securityprofiles']],
  ['System', ['hosts', 'images', 'secrets', 'events', 'audit', 'tokens']],
];
export const TITLES = {
  sandboxes: ['Sandboxes', 'box'], sandboxsnapshots: ['Snapshots', 'disc'], sandboxpools: ['Pools', 'layers'], sandboxtemplates: ['Templates', 'file'], volumes: ['Volumes', 'disk'], instances: ['Instances', 'cube'], quotas: ['Quotas', 'gauge'], hostquotas: ['Host quota', 'gauge'], securityprofiles: ['Security profiles', 'shield'], hosts: ['Host', 'server'], events: ['Events', 'bell'], audit: ['Audit', 'list'], tokens: ['Tokens', 'key'], secrets: ['Secrets', 'lock'], mcpservers: ['MCP servers', 'plug'], images: ['Images', 'disc'], providers: ['Providers', 'plug'], modelservers: ['Model servers', 'cube'], workflows: ['Workflows', 'list'], workflowruns: ['Runs', 'play'], models: ['Models', 'chip'], projects: ['Projects', 'folder'], plugins: ['Plugins', 'layers'],
};
// Pages of the API that are no kinds.
const OTHERS = ['audit', 'tokens', 'secrets', 'images', 'models', 'projects'];
// Kinds that have their list on such a page.
const LISTED = { providers: 'models', modelservers: 'models' };
// Kinds whose objects have a page of their own module.
const DETAILS = { sandboxes: 'sandbox', sandboxpools: 'pool', sandboxsnapshots: 'snapshot', mcpservers: 'mcpserver', providers: 'models', modelservers: 'models', workflows: 'workflow', workflowruns: 'workflow', plugins: 'plugin' };

/** The parts of the address: #/sandboxes/default/web/logs -> ['sandboxes', 'default', 'web', 'logs']. */
function parts() {
  return location.hash.replace(/^#\/?/, '').split('?')[0].split('/').filter(Boolean).map(decodeURIComponent);
}
const route = observable(parts());
addEventListener('hashchange', () => { route.set(parts()); scrollTo(0, 0); });

// A page's module is loaded when it is first opened.
const MODULES = {
  sandbox: () => import('./pages/sandbox.js'), form: () => import('./pages/form.js'), object: () => import('./pages/object.js'),
  hosts: () => import('./pages/host.js'), audit: () => import('./pages/audit.js'), tokens: () => import('./pages/tokens.js'),
  images: () => import('./pages/images.js'), secrets: () => import('./pages/secrets.js'), mcpserver: () => import('./pages/mcpserver.js'),
  models: () => import('./pages/models.js'), workflow: () => import('./pages/workflow.js'), plugin: () => import('./pages/plugin.js'), snapshot: () => import('./pages/snapshot.js'), projects: () => import('./pages/projects.js'),
  sandboxpools: () => import('./pages/pools.js'), pool: () => import('./pages/pool.js'), quotas: () => import('./pages/quotas.js'), hostquotas: () => import('./pages/quotas.js'),
};
/** A new page begins at its heading, for the keyboard and for screen readers. */
function focusHeading() {
  document.querySelector('main h1')?.focus();
}

function Page({ module, ...props }) {
  const [found, set] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let over = false;
    set(null);
    MODULES[module]().then((each) => { if (!over) set(() => each.default); }, () => { if (!over) setError(new ApiError(0, '', 'this page could not be loaded; reload the panel')); });
    return () => { over = true; };
  }, [module]);
  useEffect(focusHeading, [found]);
  if (error) return html`<${ErrorNote} error=${error}/>`;
  return found ? h(found, props) : html`<p class="quiet">Loading…</p>`;
}

function Routed() {
  const [plural = 'sandboxes', ...rest] = useValue(route);
  const known = useValue(kinds);
  const kind = known.find((each) => each.name === plural);
  useEffect(() => {
    document.title = `${rest.filter((each) => each !== '-').at(-1) ?? TITLES[plural]?.[0] ?? (kind ? titleOf(kind.kind) : plural)} · Paddock`;
  }, [plural, ...rest]);
  useEffect(focusHeading, [plural, rest[0], rest[1]]);
  if (OTHERS.includes(plural)) return html`<${Page} key=${plural} module=${plural}/>`;
  if (!kind) return html`<h1>Not found</h1><p class="quiet">The daemon serves no kind named ${visibleText(plural)}.</p>`;
  const [space, name, tab = ''] = kind.namespaced ? rest : ['', ...rest];
  if (rest[0] === 'new') return html`<${Page} key="new-${plural}" module=${plural === 'sandboxes' ? 'form' : 'object'} kind=${kind} create=${true}/>`;
  if (plural === 'hosts') return html`<${Page} key="hosts/${name ?? ''}" module="hosts" kind=${kind} name=${name}/>`;
  if (name) return html`<${Page} key="${plural}/${space}/${name}" module=${DETAILS[plural] ?? 'object'} kind=${kind} namespace=${space} name=${name} tab=${tab}/>`;
  if (plural in MODULES) return html`<${Page} key=${plural} module=${plural} kind=${kind}/>`;
  return html`<${KindPage} key=${plural} kind=${kind} title=${TITLES[plural]?.[0] ?? titleOf(kind.kind)}/>`;
}

const THEMES = ['auto', 'light', 'dark'];
function applyTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
applyTheme(localStorage.getItem('paddock.theme') ?? 'auto');

function Theme() {
  const [theme, set] = useState(localStorage.getItem('paddock.theme') ?? 'auto');
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`<${Button} icon="sun" tone="ghost" title="Colours: ${theme}" aria-label="Colours: ${theme}; switch to ${next}" onClick=${() => { localStorage.setItem('paddock.theme', next); applyTheme(next); set(next); }}>${theme}</${Button}>`;
}

function Shell() {
  const me = useValue(who);
  const known = useValue(kinds);
  const here = useValue(route);
  const [current = 'sandboxes'] = here;
  const [open, setOpen] = useState(false);
  const since = useValue(link);
  useEffect(() => setOpen(false), [here]);
  useEffect(() => {
    if (!open) return undefined;
    const close = (event) => { if (event.key === 'Escape' || (event.type === 'click' && !event.target.closest('.side, .bar-top'))) setOpen(false); };
    addEventListener('click', close);
    addEventListener('keydown', close);
    return () => { removeEventListener('click', close); removeEventListener('keydown', close); };
  }, [open]);
  const admin = me.grants.some((each) => each.role === 'admin' && each.namespaces.includes('*'));
  const listed = known.map((each) => each.name);
  const served = new Set([...listed, ...(admin ? ['audit', 'tokens', 'secrets'] : []), 'images', 'projects', ...listed.map((each) => LISTED[each])]);
  const named = new Set([...NAV.flatMap(([, names]) => names), ...Object.keys(LISTED)]);
  const more = known.filter((each) => !named.has(each.name)).map((each) => each.name);
  const groups = [...NAV.map(([title, names]) => [title, names.filter((each) => served.has(each))]), ['More', more]].filter(([, names]) => names.length);
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector('#main').focus(); }}>Skip to content</a><div class="shell">
    <div class="bar-top"><${Button} icon="menu" tone="ghost" aria-label="Menu" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}/><${Brand}/></div>
    <aside class="side ${open ? 'open' : ''}"><${Brand}/>
      <nav aria-label="Kinds">${groups.map(([title, names]) => html`<div key=${title}><h3>${title}</h3>${names.map((each) => {
        const [text, icon] = TITLES[each] ?? [titleOf(known.find((one) => one.name === each)?.kind ?? each), 'cube'];
        return html`<a key=${each} class="item" href="#/${each}" onClick=${() => setOpen(false)} aria-current=${(LISTED[current] ?? current) === each ? 'page' : undefined}><${Icon} name=${icon}/>${text}</a>`;
      })}</div>`)}</nav>
      <div class="foot"><div><div class="name" title=${visibleText(me.name)}>${visibleText(me.name)}</div><div class="quiet">${roles(me)}</div></div>
        <div class="row"><${Theme}/><${Button} onClick=${() => signOut()}>Sign out</${Button}></div></div>
    </aside>
    <main class="main" id="main" tabindex="-1">
      ${since !== 'live' ? html`<div class="banner" role="alert"><${Icon} name="warn"/><span>No answer from the daemon since ${new Date(since).toLocaleTimeString()}. What you see may be outdated; it is asked again until it answers.</span></div>` : ''}
      <${Routed}/></main>
  </div><${Toasts}/>`;
}

const roles = (me) => me.grants.map((each) => `${each.role} in ${each.namespaces.join(', ')}`).join('; ') || 'no grants';
const Brand = () => html`<a class="brand" href="#/sandboxes"><img src="icon.svg" width="26" height="26" alt=""/>Paddock</a>`;

const CODE = /#code=([A-Za-z0-9_-]+)/;
/** The code of a pasted address of `paddock panel`. Throws ApiError for one of another panel. */
function codeOf(text) {
  const [address] = text.trim().split('#');
  if (address && !address.startsWith(`${location.origin}/`)) throw new ApiError(400, '', 'this address opens another panel; paste it where addresses are typed');
  return CODE.exec(text)[1];
}

function SignIn({ problem }) {
  const said = useValue(farewell);
  const [token, setToken] = useState('');
  const [error, setError] = useState(problem);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try { await (CODE.test(token) ? exchange(codeOf(token)) : signIn(token)); } catch (failed) { if (!ended(failed)) setError(failed); }
    setBusy(false);
  };
  return html`<main class="signin"><form onSubmit=${submit}><div class="brand"><img src="icon.svg" width="32" height="32" alt=""/><h1>Paddock</h1></div>
    ${said && !error ? html`<div class="note warn" role="alert">${visibleText(said)}</div>` : ''}<${ErrorNote} error=${error}/>
    <label class="field"><span>Token</span><input type="password" autocomplete="off" autofocus required value=${token} onInput=${(event) => setToken(event.target.value)} placeholder="paste a token"/></label>
    <button type="submit" class="primary" disabled=${busy || !token}>Sign in</button>
    <p class="quiet">The token stays in this tab; an address that <code>paddock panel</code> printed will do, too. On the daemon's own host, <code>paddock panel</code> opens this page signed in; an admin creates tokens with <code>paddock token create</code>.</p></form></main>`;
}

/**
 * Sign in with the code of the address, which is not left in the history. Throws ApiError while somebody is signed in:
 * a link that anybody may send does not change who acts in this tab.
 */
async function enter() {
  const code = codeOf(location.hash);
  history.replaceState(null, '', `${location.pathname}#/sandboxes`);
  route.set(parts());
  if (hasToken() && !who.get()) await signIn().catch((error) => { if (hasToken()) throw error; });
  if (who.get()) throw new ApiError(409, '', `you are signed in as ${who.get().name}: the address signs in nobody; sign out first, then open it again`);
  await exchange(code);
}

function App() {
  const me = useValue(who);
  const [state, set] = useState({ ready: false });
  useEffect(() => {
    const failed = (error) => {
      if (error.status === 409) fail(error); // beside the page of who is signed in
      set({ ready: true, problem: ended(error) || who.get() ? null : error });
    };
    (async () => {
      try {
        if (CODE.test(location.hash)) {
          await enter();
        } else if (hasToken()) {
          await signIn();
        }
        set({ ready: true });
      } catch (error) {
        if (hasToken() && error.status === 0) { // a reload while the daemon is away
          await recovered();
          await signIn().catch(() => {});
        }
        failed(error);
      }
    })();
    const pasted = () => { if (CODE.test(location.hash)) enter().catch(failed); };
    addEventListener('hashchange', pasted);
    return () => removeEventListener('hashchange', pasted);
  }, []);
  if (!state.ready) return html`<p class="boot">Opening Paddock…</p>`;
  return me ? html`<${Shell} key=${me.name}/>` : html`<${SignIn} problem=${state.problem}/>`;
}

render(html`<${App}/>`, document.getElementById('app'));
