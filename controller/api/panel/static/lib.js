// What every module shares: rendering, small observable values, and formats of figures and times.
import { h, render, Fragment } from 'preact';
import { useState, useEffect, useRef, useMemo, useCallback, useLayoutEffect } from 'preact/hooks';
import htm from 'htm';

export { h, render, Fragment, useState, useEffect, useRef, useMemo, useCallback, useLayoutEffect };
export const html = htm.bind(h);

/** A value that components can watch: value.get(), value.set(next), useValue(value). */
export function observable(initial) {
  let current = initial;
  const watchers = new Set();
  return {
    get: () => current,
    set(next) {
      if (next === current) return;
      current = next;
      for (const each of [...watchers]) each(next);
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

export function useValue(source) {
  const [value, set] = useState(source.get());
  useEffect(() => {
    set(source.get());
    return source.watch(set);
  }, [source]);
  return value;
}

/** The clock of the daemon, in ms: the browser's own may be wrong. */
export const clock = { offset: 0, now: () => Date.now() + clock.offset };

/** Re-render every so many ms, for ages. */
export function useTick(ms) {
  const [, set] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => set((n) => n + 1), ms);
    return () => clearInterval(timer);
  }, [ms]);
}

export function age(time) {
  if (!time) return '–';
  const seconds = Math.max(0, Math.floor((clock.now() - Date.parse(time)) / 1000));
  for (const [size, unit] of [[86400, 'd'], [3600, 'h'], [60, 'm']]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)}${unit}`;
  }
  return `${seconds}s`;
}

/** The seconds of an age as the daemon writes it in tables: 45s, 12m, 5h, 3d. */
export function ageSeconds(text) {
  const found = /^(\d+)([smhd])/.exec(String(text));
  return found ? Number(found[1]) * { s: 1, m: 60, h: 3600, d: 86400 }[found[2]] : Infinity;
}

export function when(time) {
  if (!time) return '';
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? String(time) : date.toLocaleString();
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
export function bytes(count) {
  if (count == null || Number.isNaN(count)) return '–';
  let at = 0;
  let value = count;
  while (Math.abs(value) >= 1024 && at < UNITS.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${value >= 100 || at === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[at]}`;
}

const SUFFIXES = { Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60, m: 1e-3, k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, '': 1 };
/** A Kubernetes quantity as a number, NaN if it is none. For drawing only: the daemon does the sums. */
export function quantity(text) {
  const found = /^([0-9.]+)([A-Za-z]*)$/.exec(String(text ?? ''));
  return found && found[2] in SUFFIXES ? Number(found[1]) * SUFFIXES[found[2]] : NaN;
}

// Control characters and bidirectional overrides could make text look like other text.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
/** Text from a sandbox or a person, with characters shown that would be invisible. */
export function visibleText(text) {
  return String(text ?? '').replace(HIDDEN, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** A kind's name in words: ModelServer -> 'model server'. */
export const wordsOf = (kind) => kind.replace(/([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])/g, '$1$3 $2').replace(/\b[A-Z][a-z]+/g, (each) => each.toLowerCase()).replace(/ +/g, ' ').trim();
/** ... and of many, as a title: 'Model servers'. */
export function titleOf(kind) {
  const words = wordsOf(kind).replace(/([^aeiou])y$/, '$1ie').replace(/(s|x|ch|sh)$/, '$1e');
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}s`;
}

/** The text of any value, for a cell. */
export function shown(value) {
  if (value === null || value === undefined) return '–';
  return typeof value === 'object' ? JSON.stringify(value) : visibleText(value);
}

/** A quantity that a person reads at a glance: 24684084Ki is 23.5 GiB. */
export const readable = (text) => (/^\d{5,}Ki$/.test(String(text ?? '')) ? bytes(quantity(text)) : String(text ?? ''));

export const copyOf = (value) => (value === undefined ? undefined : JSON.parse(JSON.stringify(value)));

/** The value at a path of names, undefined if there is none. */
export function at(object, path) {
  let found = object;
  for (const each of path) found = found == null ? undefined : found[each];
  return found;
}

/** A copy of the object with the value at the path; undefined removes it, and maps that are empty then. */
export function withValue(object, path, value) {
  const [name, ...rest] = path;
  const made = Array.isArray(object) ? [...object] : { ...(object ?? {}) };
  const next = rest.length ? withValue(made[name], rest, value) : value;
  const empty = next === undefined || (rest.length && !Array.isArray(next) && next && Object.keys(next).length === 0 && at(object, [name]) === undefined);
  if (empty) delete made[name];
  else made[name] = next;
  return made;
}

/** The RFC 7386 merge patch between two JSON values. */
export function mergePatch(before, after) {
  if (!plain(before) || !plain(after)) return after;
  const patch = {};
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (!(name in after)) patch[name] = null;
    else if (!(name in before)) patch[name] = after[name];
    else if (JSON.stringify(before[name]) !== JSON.stringify(after[name])) patch[name] = mergePatch(before[name], after[name]);
  }
  return patch;
}
const plain = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** The smallest parts that differ, as [path, before, after]. */
export function differences(before, after, path = []) {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  if (plain(before) && plain(after)) {
    return [...new Set([...Object.keys(after), ...Object.keys(before)])].flatMap((name) => differences(before[name], after[name], [...path, name]));
  }
  return [[path.join('.'), before, after]];
}

/** Save bytes or a Blob as a file of the browser. */
export function download(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
