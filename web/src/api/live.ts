/** The live connection: opens, subscribes, hands on messages in order, and comes back by itself. */

import { PREFIX } from "@/api/prefix";
import type { LiveMessage } from "@/api/wire";
import { readMessage } from "@/api/wire";
import { apiTexts as texts } from "@/texts";

export type ConnectionState = "connecting" | "open" | "lost";

export interface FeedListener {
  message(message: LiveMessage): void;
  state(state: ConnectionState): void;
}

/** A source of live messages; the server's, or a made-up one in benches and tests. */
export interface ClusterFeed {
  /** Ask for these metric columns from now on; others stop. */
  subscribe(metrics: readonly string[]): void;
  close(): void;
}

// Waits between attempts grow to this; a server that restarts is found again within seconds.
const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 5_000;

/** Connect to the server's live endpoint. */
export function connect(url: string, cluster: string, listener: FeedListener): ClusterFeed {
  let socket: WebSocket | null = null;
  let wanted: readonly string[] = [];
  let wait = FIRST_WAIT_MS;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let closed = false;
  let queue: Promise<unknown> = Promise.resolve();

  function open(): void {
    const current = new WebSocket(url);
    socket = current;
    current.binaryType = "arraybuffer";
    current.onopen = () => {
      wait = FIRST_WAIT_MS;
      listener.state("open");
      ask();
    };
    current.onmessage = (event: MessageEvent) => {
      if (!(event.data instanceof ArrayBuffer)) return;
      const decoded = readMessage(event.data);
      // Parts inflate side by side, messages arrive one after another.
      queue = queue
        .then(() => decoded)
        .then((message) => {
          if (!closed && socket === current) listener.message(message);
        })
        .catch((error: unknown) => {
          console.error(texts.aLiveMessageCouldNotBe, error);
          current.close();
        });
    };
    current.onclose = () => {
      if (closed || socket !== current) return;
      listener.state("lost");
      timer = setTimeout(open, wait * (0.75 + Math.random() / 2));
      wait = Math.min(LONGEST_WAIT_MS, wait * 1.8);
    };
  }

  function ask(): void {
    if (socket?.readyState === WebSocket.OPEN)
      socket.send(JSON.stringify({ subscribe: wanted, cluster }));
  }

  listener.state("connecting");
  open();
  return {
    subscribe(metrics) {
      wanted = [...metrics];
      ask();
    },
    close() {
      closed = true;
      clearTimeout(timer);
      socket?.close();
    },
  };
}

/** The address of the live endpoint of the server that served this page. */
export function liveUrl(location: { protocol: string; host: string }): string {
  return `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}${PREFIX}/api/v1/live`;
}
