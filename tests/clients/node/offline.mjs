// Keeps a process to this machine: connections to any other address end it.
import net from "node:net";

const connect = net.Socket.prototype.connect;

net.Socket.prototype.connect = function (...given) {
  const options = Array.isArray(given[0]) ? given[0][0] : given[0];
  const host = options?.host ?? "localhost";
  if (!/^(127\.|::1$|localhost$)/.test(host)) {
    console.error(`no network for clients: ${host}`);
    process.exit(3);
  }
  return connect.apply(this, given);
};
