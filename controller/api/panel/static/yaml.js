// Objects as YAML text. The way back is the daemon's: it reads the text by its own rules.

const PLAIN = /^[A-Za-z_/][A-Za-z0-9_./@-]*( [A-Za-z0-9_./@()-]+)*$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n|~)$/i;

function scalar(value, indent) {
  if (typeof value !== 'string') return JSON.stringify(value);
  if (/\n/.test(value) && !/[^\n\t\x20-\x7e\u00a0-\u2027\u202f-\u2065\u2070-\ud7ff]/.test(value) && !/^[\s\n]|[ \t]\n|[ \t]$/.test(value)) {
    const body = value.replace(/\n+$/, '');
    const end = value.length - body.length;
    const pad = ' '.repeat(indent);
    const text = body.split('\n').map((each) => (each ? pad + each : '')).join('\n');
    if (end <= 1) return `|${end ? '' : '-'}\n${text}`;
  }
  return PLAIN.test(value) && !WORDS.test(value) ? value : JSON.stringify(value);
}

const isMap = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const empty = (value) => (Array.isArray(value) && !value.length) || (isMap(value) && !Object.keys(value).length);

function block(value, indent) {
  const pad = ' '.repeat(indent);
  if (Array.isArray(value)) {
    return value.map((each) => {
      if ((isMap(each) || Array.isArray(each)) && !empty(each)) return `${pad}- ${block(each, indent + 2).slice(indent + 2)}`;
      return `${pad}- ${empty(each) ? JSON.stringify(each) : scalar(each, indent + 2)}`;
    }).join('\n');
  }
  return Object.entries(value).filter(([, each]) => each !== undefined).map(([name, each]) => {
    const key = PLAIN.test(name) && !WORDS.test(name) && !name.includes(' ') ? name : JSON.stringify(name);
    if (empty(each)) return `${pad}${key}: ${JSON.stringify(each)}`;
    if (isMap(each)) return `${pad}${key}:\n${block(each, indent + 2)}`;
    if (Array.isArray(each)) return `${pad}${key}:\n${block(each, indent + 2)}`;
    return `${pad}${key}: ${scalar(each, indent + 2)}`;
  }).join('\n');
}

export const toYaml = (value) => `${block(value, 0)}\n`;

/** The parts of an object that a person writes, with the version that it was read at. */
export function written(object, { version = false } = {}) {
  const { name, namespace, labels, annotations, resourceVersion } = object.metadata;
  const metadata = { name, namespace, labels, annotations, ...(version ? { resourceVersion } : {}) };
  return { apiVersion: object.apiVersion, kind: object.kind, metadata: Object.fromEntries(Object.entries(metadata).filter(([, each]) => each !== undefined)), ...('spec' in object ? { spec: object.spec } : {}) };
}
