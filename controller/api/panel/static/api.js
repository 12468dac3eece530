// The API: one session, requests, watches, and what to do when the daemon is away or the token has ended.
import { clock, observable, useEffect, useState, useValue } from './lib.js';

export const PREFIX = '/apis/paddock/v1alpha1';
const KEY = 'paddock.session';
const SUBPROTOCOL = 'base64url.bearer.authorization.k8s.io.';

export class ApiError extends Error {
  constructor(status, reason, message, details = {}) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.causes = details.causes ?? [];
    this.details = details;
  }
}

let token = sessionStorage.getItem(KEY) ?? '';
let ending = new AbortController();
/** Who is signed in: null while nobody is. */
export const who = observable(null);
/** Why somebody was signed out, for the sign-in page. */
export const farewell = observable('');
/** 'live', or since when (ms) nobody has answered. */
export const link = observable('live');
/** True behind `paddock panel`, which can open previews. */
export const local = observable(false);
export const kinds = observable([]);

export function hasToken() {
  return Boolean(token);
}

/** Ends all requests and streams, and forgets the token and everything that was read with it. */
export function signOut(message = '') {
  token = '';
  sessionStorage.removeItem(KEY);
  ending.abort(new DOMException('signed out', 'AbortError'));
  ending = new AbortController();
  answers.clear();
  farewell.set(message);
  link.set('live');
  who.set(null);
}

/** Sign in with a token, or with one that is stored for this tab. Throws ApiError. */
export async function signIn(given = token) {
  token = given.trim();
  try {
    const behind = fetch('/panel/session', { headers: bearer(), cache: 'no-store' }).then((each) => each.ok, () => false);
    const [found, served] = await Promise.all([call('auth/whoami'), call('')]);
    kinds.set(served.resources);
    sessionStorage.setItem(KEY, token);
    behind.then((each) => local.set(each));
    farewell.set('');
    who.set(found);
  } catch (error) {
    if (!ended(error) && error.status !== 0 && error.status !== 502) signOut(error.message);
    throw error;
  }
}

/** Exchange the one-time code of `paddock panel` for this tab's session. */
export async function exchange(code) {
  const answer = await fetch('/panel/session', {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ code }), cache: 'no-store',
  });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new ApiError(answer.status, body.reason ?? '', body.message ?? 'the link does not work; run `paddock panel` again');
  await signIn(body.token);
}

function bearer() {
  return { Authorization: `Bearer ${token}` };
}

export const TABLE = 'application/json;as=Table';
const url = (path) => (path.startsWith('/') ? path : path ? `${PREFIX}/${path}` : PREFIX);

/** A request; returns the Response. Throws ApiError for an error, and AbortError when it was ended. */
export async function send(path, { method = 'GET', body, type, accept, signal, query, headers: more } = {}) {
  const headers = { ...more, ...bearer() };
  if (accept) headers.Accept = accept;
  if (body !== undefined) headers['Content-Type'] = type ?? 'application/json';
  const full = query ? `${url(path)}?${new URLSearchParams(query)}` : url(path);
  const sent = typeof body === 'string' || body instanceof Blob || body === undefined ? body : JSON.stringify(body);
  const ended = ending.signal;
  let answer;
  try {
    answer = await fetch(full, { method, headers, body: sent, cache: 'no-store', redirect: 'error', signal: signal ? AbortSignal.any([ended, signal]) : ended });
  } catch (error) {
    if (ended.aborted || signal?.aborted) throw new DOMException('ended', 'AbortError');
    throw new ApiError(0, 'Unreachable', 'no answer from the daemon; it is asked again until it answers');
  }
  const date = Date.parse(answer.headers.get('date') ?? '');
  if (date) clock.offset = Math.abs(date - Date.now()) < 2000 ? 0 : date - Date.now();
  if (answer.ok) return answer;
  const text = await answer.text().catch(() => '');
  let found = {};
  try { found = JSON.parse(text); } catch { /* not an answer of the API */ }
  if (answer.status === 401 && who.get()) {
    signOut(found.message ?? 'your token has ended; sign in with another');
    throw new DOMException('signed out', 'AbortError');
  }
  throw new ApiError(answer.status, found.reason ?? '', found.message ?? `the daemon answered ${answer.status}`, found.details);
}

export async function call(path, options) {
  return (await send(path, options)).json();
}

const PAGE = '500';
/** A list with the items, or rows, of all of its pages. The daemon cuts a page by its size, too. */
export async function listAll(path, { query, ...options } = {}) {
  const first = await call(path, { ...options, query: { limit: PAGE, ...query } });
  const name = first.rows ? 'rows' : 'items';
  for (let rest = first.metadata?.continue; rest;) {
    const page = await call(path, { ...options, query: { limit: PAGE, ...query, continue: rest } });
    first[name].push(...page[name]);
    rest = page.metadata?.continue;
  }
  delete first.metadata?.continue;
  return first;
}

export const ended = (error) => error?.name === 'AbortError';

let recovery = null;
/** Resolves once the daemon answers again. Until then `link` says since when it has not. */
export function recovered() {
  recovery ??= (async () => {
    const since = Date.now();
    for (let wait = 250; ; wait = Math.min(2000, wait * 2)) {
      try {
        await call('/version');
        break;
      } catch (error) {
        if (ended(error)) break;
        if (error.status !== 0 && error.status !== 502) break; // it answers, if only with an error
        if (link.get() === 'live') link.set(since);
        await sleep(wait);
      }
    }
    link.set('live');
  })().finally(() => { recovery = null; });
  return recovery;
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function shownPage(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((done) => {
    const go = () => { if (!document.hidden || signal.aborted) { document.removeEventListener('visibilitychange', go); done(); } };
    document.addEventListener('visibilitychange', go);
    signal.addEventListener('abort', go, { once: true });
  });
}

/** The objects of an answer of JSON lines, as they come. */
export async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const each of parts) if (each) yield JSON.parse(each);
  }
}

/**
 * Keep a list up to date until the returned function is called: `onList(list)`, then `onEvent(type, object)`.
 * A hidden page holds no watch. A kind that can't be watched is read every few seconds.
 */
export function follow({ path, query = {}, accept, watchable = true, every = 5000, onList, onEvent, onError }) {
  const stop = new AbortController();
  const { signal } = stop;
  (async () => {
    let version = '';
    let wait = 500;
    while (!signal.aborted) {
      try {
        await shownPage(signal);
        if (!version) {
          const list = await (watchable ? listAll : call)(path, { query, accept, signal });
          version = list.metadata?.resourceVersion ?? '';
          onList(list);
        }
        wait = 500;
        if (!watchable || !version) {
          version = '';
          await sleep(every);
        } else {
          version = await watchFrom(version);
        }
      } catch (error) {
        if (signal.aborted || (ended(error) && !who.get())) return;
        version = '';
        if (ended(error)) continue;
        if (error.status === 410) continue;
        if (!(error instanceof ApiError) || error.status === 0 || error.status === 502) { await recovered(); continue; }
        onError?.(error);
        await sleep(wait);
        wait = Math.min(15_000, wait * 2);
      }
    }
  })();
  async function watchFrom(version) {
    const pause = new AbortController();
    const hide = () => { if (document.hidden) pause.abort(); };
    document.addEventListener('visibilitychange', hide);
    try {
      const answer = await send(path, { accept, signal: AbortSignal.any([signal, pause.signal]), query: { ...query, watch: '1', allowWatchBookmarks: '1', resourceVersion: version } });
      for await (const { type, object } of lines(answer)) {
        if (type === 'ERROR') throw new ApiError(object.code, object.reason, object.message);
        version = object.metadata?.resourceVersion ?? version;
        if (type !== 'BOOKMARK') onEvent(type, object);
      }
      return version;
    } catch (error) {
      if (pause.signal.aborted && !signal.aborted) return version; // the page was hidden: go on from here
      throw error;
    } finally {
      document.removeEventListener('visibilitychange', hide);
      pause.abort();
    }
  }
  return () => stop.abort();
}

/** The path of a kind's objects: of a namespace, or of all with ''. */
export function pathOf(kind, namespace, name) {
  const plural = typeof kind === 'string' ? kind : kind.name;
  const namespaced = typeof kind === 'string' ? true : kind.namespaced;
  const head = namespaced && namespace ? `namespaces/${encodeURIComponent(namespace)}/${plural}` : plural;
  return name ? `${head}/${encodeURIComponent(name)}` : head;
}

/** Request the deletion of an object. A volume is deleted on its host. */
export const remove = (kind, { metadata, status = {} }) => call(pathOf(kind, metadata.namespace, metadata.name), { method: 'DELETE', query: kind.name === 'volumes' && status.host ? { host: status.host } : {} });

export const sandboxPath = (namespace, name, sub = '') => pathOf('sandboxes', namespace, name) + (sub ? `/${sub}` : '');

/** The object, kept up to date: {object, error, gone}. */
export function useObject(kind, namespace, name) {
  const [state, set] = useState({});
  useEffect(() => {
    set({});
    if (!kind || !name) return undefined;
    const watchable = kind.verbs.includes('watch');
    if (!watchable) {
      return follow({ path: pathOf(kind, namespace, name), watchable: false, every: 4000, onList: (object) => set({ object }), onError: (error) => set((old) => ({ ...old, error })) });
    }
    return follow({
      path: pathOf(kind, kind.namespaced ? namespace : '', ''),
      query: { fieldSelector: `metadata.name=${name}` },
      onList: (list) => set(list.items.length ? { object: list.items[0] } : { gone: true }),
      onEvent: (type, object) => set(type === 'DELETED' ? (old) => ({ ...old, gone: true }) : { object }),
      onError: (error) => set((old) => ({ ...old, error })),
    });
  }, [kind, namespace, name]);
  return state;
}

/**
 * Ask every few ms while the page is shown: {value, error}. `ask` is a function that returns a promise, or null;
 * `every` is a number, or a function that returns one. `keep`: show the last value until the first of the new inputs is there.
 */
export function usePolled(ask, every, inputs, keep = false) {
  const [state, set] = useState({});
  useEffect(() => {
    if (!keep) set({});
    let over = false;
    const stop = new AbortController();
    (async () => {
      while (!over && ask) {
        await shownPage(stop.signal);
        if (over) return;
        try {
          const value = await ask(stop.signal);
          if (!over) set({ value });
        } catch (error) {
          if (over || ended(error)) return;
          if (error.status === 0 || error.status === 502) await recovered();
          else set((old) => ({ ...old, error }));
        }
        if (!every) return;
        await sleep(typeof every === 'function' ? every() : every);
      }
    })();
    return () => { over = true; stop.abort(); };
  }, inputs);
  return state;
}

const answers = new Map();
/** May the caller do this? Each question is asked once. */
export function mayI(question) {
  const key = JSON.stringify(question);
  if (!answers.has(key)) {
    answers.set(key, call('auth/can-i', { method: 'POST', body: question }).catch((error) => {
      answers.delete(key);
      return { allowed: false, reason: ended(error) ? '' : error.message };
    }));
  }
  return answers.get(key);
}

/** The same as state: {allowed, reason}; not allowed until the answer is there. */
export function useCan(verb, kind, namespace = null, name = '', subresource = '') {
  const [answer, set] = useState({ allowed: false, reason: '' });
  const signedIn = useValue(who);
  useEffect(() => {
    let over = false;
    if (signedIn && kind) mayI({ verb, kind, namespace: namespace || null, name, subresource }).then((found) => { if (!over) set(found); });
    return () => { over = true; };
  }, [verb, kind, namespace, name, subresource, signedIn]);
  return answer;
}

/** A WebSocket of the API. The token goes as a subprotocol, which is neither echoed nor logged. */
export function socket(path, query, protocol) {
  const encoded = btoa(token).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
  const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
  const made = new WebSocket(`${scheme}//${location.host}${url(path)}?${query}`, [protocol, SUBPROTOCOL + encoded]);
  made.binaryType = 'arraybuffer';
  const close = () => made.close();
  ending.signal.addEventListener('abort', close, { once: true });
  return made;
}

/** Upload with progress; abort by `signal`. Throws ApiError. */
export function upload(path, query, file, onProgress, signal) {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    request.open('PUT', `${url(path)}?${new URLSearchParams(query)}`);
    request.setRequestHeader('Authorization', bearer().Authorization);
    request.setRequestHeader('Content-Type', 'application/octet-stream');
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onerror = () => fail(new ApiError(0, 'Unreachable', 'the upload broke off; nothing was written'));
    request.onabort = () => fail(new DOMException('ended', 'AbortError'));
    request.onload = () => {
      let body = {};
      try { body = JSON.parse(request.responseText); } catch { /* not JSON */ }
      if (request.status < 300) done(body);
      else fail(new ApiError(request.status, body.reason ?? '', body.message ?? `the daemon answered ${request.status}`, body.details));
    };
    for (const each of [signal, ending.signal]) each?.addEventListener('abort', () => request.abort(), { once: true });
    request.send(file);
  });
}

/** Open a port of a sandbox at an origin of its own, by `paddock panel`. */
export async function preview(namespace, name, port) {
  const answer = await fetch('/panel/previews', { method: 'POST', headers: { ...bearer(), 'Content-Type': 'application/json' }, body: JSON.stringify({ namespace, name, port }) });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new ApiError(answer.status, body.reason ?? '', body.message ?? 'the preview could not be opened');
  return body.url;
}
