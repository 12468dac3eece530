// Names below localhost resolve to the loopback, as systemd-resolved has it. For `node --import`.
import dns from 'node:dns'

const lookup = dns.lookup
dns.lookup = (host, options, done) => lookup(host.endsWith('.localhost') ? '127.0.0.1' : host, options, done)
