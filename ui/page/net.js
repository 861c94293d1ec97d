// Requests to the page's own server. The token comes after the # of the link, which no browser
// sends. It is kept for this tab and sent as a header.

const key = 'troupe-token';

export function takeToken() {
  const m = location.hash.match(/^#token=([^&]+)(?:&(.*))?$/);
  if (!m) return;
  keepToken(decodeURIComponent(m[1]));
  history.replaceState(null, '', location.pathname + location.search + '#' + (m[2] || '/'));
}

export function keepToken(t) { try { sessionStorage.setItem(key, t); } catch { memory = t; } }
let memory = '';
export function token() { try { return sessionStorage.getItem(key) || memory; } catch { return memory; } }

function headers(more = {}) {
  const t = token();
  return t ? { ...more, Authorization: `Bearer ${t}` } : more;
}

// reading is the headers of a request for data. On loopback a server usually lets everyone read. A page that stays open sends its
// token only where that is needed, because another program may get the port when the run has ended.
let needed = location.protocol === 'https:';
const reading = (path, more = {}) => (needed || path === 'api/me' ? headers(more) : more);

export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function checked(path, init) {
  let r;
  try {
    r = await fetch(path, { cache: 'no-store', credentials: 'same-origin', referrerPolicy: 'no-referrer', ...init });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Refused(0, 'The server does not answer. engine run --ui serves this page only until the run ends: open the run again with engine ui DIR.');
  }
  if (r.ok) return r;
  if ((r.status === 401 || r.status === 403) && token() && !needed && !init.method) {
    needed = true;
    return checked(path, { ...init, headers: headers(init.headers) });
  }
  let why = `${r.status} ${r.statusText}`;
  try { why = (await r.json()).error || why; } catch { /* no JSON: keep the status */ }
  throw new Refused(r.status, why);
}

export const get = async (path, signal) => (await checked(path, { headers: reading(path), signal })).json();
export const getBytes = async (path, signal) => (await checked(path, { headers: reading(path), signal })).arrayBuffer();
export const post = async (path, body) =>
  (await checked(path, { method: 'POST', headers: headers({ 'Content-Type': 'application/json' }), body: JSON.stringify(body) })).json();

// follow reads server-sent events until the function that it returns is called, and calls on[kind](data)
// for each. It reconnects after a lost connection and continues after the last event.
export function follow(path, on) {
  let last = '', stopped = false, wait = 500, abort = new AbortController();
  (async () => {
    while (!stopped) {
      try {
        const r = await checked(path, { headers: reading(path, last ? { 'Last-Event-ID': last } : {}), signal: abort.signal });
        on.connected?.();
        wait = 500;
        const from = r.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = '';
        for (;;) {
          const { value, done } = await from.read();
          if (done) break;
          rest += value;
          const parts = rest.split('\n\n');
          rest = parts.pop();
          for (const p of parts) {
            let kind = '', data = '';
            for (const line of p.split('\n')) {
              if (line.startsWith('id: ')) last = line.slice(4);
              else if (line.startsWith('event: ')) kind = line.slice(7);
              else if (line.startsWith('data: ')) data += line.slice(6);
            }
            if (kind === 'over') stopped = true;
            if (kind && on[kind]) on[kind](JSON.parse(data));
          }
        }
      } catch (e) {
        if (stopped || e.name === 'AbortError') return;
        on.broken?.(e);
        if (e.status === 401 || e.status === 403 || e.status === 404) return;
      }
      if (stopped) return;
      await new Promise((f) => setTimeout(f, wait));
      wait = Math.min(wait * 2, 10000);
    }
  })();
  return () => { stopped = true; abort.abort(); };
}
