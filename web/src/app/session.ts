import { chosenCluster } from "@/api/chosen";
import { connect, liveUrl } from "@/api/live";
import { fetchMoment } from "@/api/moments";
import { LiveSession } from "@/base/live/session";

let session: LiveSession | null = null;

/** The one live session, opened once it is known which cluster it is about. */
export function openSession(): LiveSession {
  session ??= new LiveSession(
    (listener) => connect(liveUrl(location), chosenCluster(), listener),
    fetchMoment,
  );
  return session;
}
