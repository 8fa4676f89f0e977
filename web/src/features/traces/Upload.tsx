import { useEffect, useRef, useState } from "react";
import { postJson, putBytes } from "@/api/client";
import { Icon } from "@/base/ui/Icon";
import type { Limits, RunSummary, TraceFile } from "@/features/traces/documents";
import { listFiles, runPath, useRunActions } from "@/features/traces/queries";
import type { Sending, UploadTarget } from "@/features/traces/uploading";
import { planUpload, sendFiles } from "@/features/traces/uploading";
import { formatBytes, shorten } from "@/features/traces/words";
import { formatCount } from "@/base/format";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/Traces.module.css";
import { tracesTexts as texts } from "@/texts";

interface UploadProps {
  workload: string;
  limits: Limits | null;
  /** A run whose files did not all arrive: new files go to it. */
  resumed: RunSummary | null;
  onDone: () => void;
}

const targetOf = (run: string): UploadTarget => ({
  list: (file) => listFiles(run, file),
  send: (file, offset, bytes, part) =>
    putBytes<TraceFile>(`${runPath(run)}/files`, { file, offset, bytes }, part),
});

const WORDS = { tooLarge: texts.tooLarge, tooMany: texts.tooManyFiles, empty: texts.emptyFile };

/** Where files are dropped or chosen, and how far each of them is. */
export function Upload({ workload, limits, resumed, onDone }: UploadProps) {
  const [plan, setPlan] = useState<Sending[]>([]);
  const [files, setFiles] = useState<File[]>([]);
  const [run, setRun] = useState<string | null>(null);
  const [error, setError] = useState("");
  const [over, setOver] = useState(false);
  const stop = useRef<AbortController | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const { convert, refresh } = useRunActions();

  useEffect(() => {
    if (resumed) input.current?.click();
  }, [resumed]);

  const start = async (chosen: File[], into: string | null) => {
    if (chosen.length === 0) return;
    setError("");
    setFiles(chosen);
    const planned = planUpload(chosen, limits, WORDS);
    setPlan(planned);
    const abort = (stop.current = new AbortController());
    try {
      const id = into ?? (await makeRun(chosen, workload));
      setRun(id);
      const whole = await sendFiles(chosen, planned, targetOf(id), setPlan, abort.signal);
      if (whole) {
        await convert.mutateAsync(id);
        onDone();
      }
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : String(problem));
    } finally {
      stop.current = null;
      await refresh();
    }
  };
  const sending = plan.some(({ state }) => state === "sending" || state === "waiting");
  const active = stop.current !== null && sending;
  const failed = plan.some(({ state }) => state === "failed") || (!active && sending);
  return (
    <section
      className={styles["drop"]}
      data-over={over || undefined}
      aria-label={texts.upload}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void droppedFiles(event.dataTransfer).then((all) => start(all, resumed?.id ?? null));
      }}
    >
      <p>
        {resumed ? texts.dropMoreFor(shorten(resumed.name, 60)) : texts.dropFiles}{" "}
        <button className={ui["button"]} type="button" onClick={() => input.current?.click()}>
          <Icon name="plus" /> {texts.chooseFiles}
        </button>
      </p>
      <input
        ref={input}
        className={ui["visually-hidden"]}
        type="file"
        multiple
        aria-label={texts.chooseFiles}
        data-testid="trace-files"
        onChange={(event) => {
          const chosen = [...(event.target.files ?? [])];
          event.target.value = "";
          void start(chosen, resumed?.id ?? null);
        }}
      />
      {limits && (
        <p className={ui["muted"]}>
          {texts.limits(
            formatCount(limits.files),
            formatBytes(limits.file_bytes),
            formatBytes(Math.max(0, limits.total_bytes - limits.used_bytes)),
            Math.round(limits.retention_ms / 86_400_000),
          )}
        </p>
      )}
      {error && <p role="alert">{error}</p>}
      {plan.length > 0 && <Files plan={plan} />}
      {active && (
        <button className={ui["button"]} type="button" onClick={() => stop.current?.abort()}>
          {texts.stopUpload}
        </button>
      )}
      {!active && failed && run !== null && (
        <button className={ui["button"]} type="button" onClick={() => void start(files, run)}>
          {texts.tryAgain}
        </button>
      )}
    </section>
  );
}

async function makeRun(files: readonly File[], workload: string): Promise<string> {
  const name = files.length === 1 ? files[0].name : texts.filesOf(files[0].name, files.length - 1);
  const made = await postJson<RunSummary>("/traces", { name: name.slice(0, 200), workload });
  return made.id;
}

const STATES: Record<Sending["state"], string> = {
  waiting: texts.fileWaiting,
  sending: texts.fileSending,
  done: texts.fileDone,
  refused: texts.fileRefused,
  failed: texts.fileFailed,
};
const MOST_SHOWN = 200;

/** One line per file; those that need attention first. */
function Files({ plan }: { plan: readonly Sending[] }) {
  const weight = ({ state }: Sending) =>
    ["failed", "refused", "sending", "waiting", "done"].indexOf(state);
  const shown = [...plan].sort((a, b) => weight(a) - weight(b)).slice(0, MOST_SHOWN);
  const done = plan.filter(({ state }) => state === "done").length;
  return (
    <>
      <p role="status">{texts.filesDone(done, plan.length)}</p>
      <div className={styles["files"]} tabIndex={0} role="region" aria-label={texts.files}>
        <table className={pageStyles["page-table"]} data-testid="upload-files">
          <tbody>
            {shown.map((file) => (
              <tr key={file.name} data-state={file.state}>
                <td>{shorten(file.name, 80)}</td>
                <td className={pageStyles["figure"]}>{formatBytes(file.bytes)}</td>
                <td>
                  <progress
                    value={file.sent}
                    max={Math.max(1, file.bytes)}
                    aria-label={texts.progressOf(shorten(file.name, 60))}
                  />
                </td>
                <td>
                  {STATES[file.state]}
                  {file.note && `: ${shorten(file.note, 200)}`}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** The files of a drop, those in folders included. */
async function droppedFiles(transfer: DataTransfer): Promise<File[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.() ?? null);
  if (entries.every((entry) => entry === null)) return [...transfer.files];
  const found: File[] = [];
  for (const entry of entries) if (entry) await collectFiles(entry, found);
  return found;
}

async function collectFiles(entry: FileSystemEntry, into: File[]): Promise<void> {
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) =>
      (entry as FileSystemFileEntry).file(resolve, reject),
    );
    // A dropped file does not say where it lies, its entry does.
    Object.defineProperty(file, "webkitRelativePath", { value: entry.fullPath.slice(1) });
    into.push(file);
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (part.length === 0) return;
    for (const inner of part) await collectFiles(inner, into);
  }
}
