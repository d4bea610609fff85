// A conversation with @stomp/stompjs over WebSocket, as a browser would have it.
// Usage: node conversation.mjs URL DIRECTORY_OF_NODE_MODULES
import { createRequire } from "node:module";
const require = createRequire(process.argv[3] + "/");
const { Client } = require("@stomp/stompjs");
const { WebSocket } = require("ws");

const binary = new Uint8Array([0, 1, 2, 255, 0]);
const seen = [];
const client = new Client({
  brokerURL: process.argv[2],
  webSocketFactory: () => new WebSocket(process.argv[2], ["v12.stomp", "v11.stomp", "v10.stomp"]),
  reconnectDelay: 0,
});
const fail = (what) => { console.error(String(what)); process.exit(1); };
client.onStompError = (frame) => fail(frame.headers.message);
client.onWebSocketError = (event) => fail(event.message);
client.onConnect = (frame) => {
  console.log("version", frame.headers.version, client.webSocket.protocol);
  client.subscribe("/queue/jobs", (message) => {
    seen.push(message.headers["content-type"] === "application/octet-stream"
      ? Buffer.from(message.binaryBody).toString("hex") : message.body);
    message.ack();
    if (seen.length === 3) {
      console.log(seen.join(" "));
      client.onWebSocketClose = () => process.exit(0);
      client.deactivate();
    }
  }, { ack: "client-individual" });
  client.publish({ destination: "/queue/jobs", body: "one" });
  client.publish({ destination: "/queue/jobs", body: "grüße" });
  client.publish({
    destination: "/queue/jobs", binaryBody: binary, headers: { "content-type": "application/octet-stream" },
  });
};
client.activate();
setTimeout(() => fail("nothing more came"), 30000);
