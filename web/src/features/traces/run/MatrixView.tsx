import { useEffect, useState } from "react";
import type { Theme } from "@/base/colour";
import { continuousScheme, interpolate } from "@/base/colour";
import { useTheme } from "@/base/theme";
import { clearCanvas, useCanvas } from "@/base/ui/canvas";
import { makePalette } from "@/charts/marey/kinds";
import { imageOf, makePicture } from "@/charts/marey/image/picture";
import type { Matrix } from "@/charts/matrix";
import { cellAt, chooseTicks, paintMatrix, rangeOf } from "@/charts/matrix";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/run/Run.module.css";
import { tracesTexts as texts } from "@/texts";

const LEAST_CELL_PX = 6;
const MOST_HEIGHT_PX = 520;
/** Pixels that the name of a row or column takes. */
const [ROW_ROOM_PX, COLUMN_ROOM_PX] = [12, 44];

/** The colours of the scale from least to most. */
function rampOf(theme: Theme): string {
  const colours = Array.from({ length: 9 }, (_, i) => {
    const [red, green, blue] = interpolate(continuousScheme("marey", theme), i / 8);
    return `rgb(${red} ${green} ${blue})`;
  });
  return `linear-gradient(to right, ${colours.join(", ")})`;
}

/** A matrix of colours: the pointer or the arrow keys read a cell, a click or Enter chooses it. */
export function MatrixView({
  label,
  matrix,
  describe,
  onChoose,
  format,
  axes,
}: {
  label: string;
  matrix: Matrix;
  /** What rows and columns are, and the name of each. */
  axes: {
    rows: string;
    columns: string;
    row: (at: number) => string;
    column: (at: number) => string;
  };
  describe: (row: number, column: number, value: number) => string;
  onChoose?: (row: number, column: number) => void;
  format: (value: number) => string;
}) {
  const theme = useTheme((state) => state.theme);
  const [at, setAt] = useState<{ row: number; column: number } | null>(null);
  const [canvas, width] = useCanvas(800, 50);
  const range = rangeOf(matrix);
  const height = Math.min(MOST_HEIGHT_PX, Math.max(60, matrix.rows * LEAST_CELL_PX * 2));
  useEffect(() => {
    // One pixel of the picture is one of the page: it is stretched where the screen has more.
    const context = clearCanvas(canvas.current, width, height, 1);
    if (!context) return;
    const picture = makePicture(width, height, makePalette(theme).ground);
    paintMatrix(matrix, picture, continuousScheme("marey", theme), rangeOf(matrix));
    context.putImageData(imageOf(picture), 0, 0);
    if (!at) return;
    const [w, h] = [width / matrix.columns, height / matrix.rows];
    context.strokeStyle = makePalette(theme).selected;
    context.lineWidth = 2;
    context.strokeRect(at.column * w, at.row * h, Math.max(3, w), Math.max(3, h));
  }, [canvas, matrix, width, height, theme, at]);
  const find = (event: React.MouseEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    return cellAt(
      matrix,
      (event.clientX - box.left) / box.width,
      (event.clientY - box.top) / box.height,
    );
  };
  const move = (event: React.KeyboardEvent) => {
    const steps: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
    };
    if (event.key === "Enter" && at) onChoose?.(at.row, at.column);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [down, right] = steps[event.key];
    const clamp = (value: number, most: number) => Math.max(0, Math.min(most - 1, value));
    setAt({
      row: clamp((at?.row ?? -down) + down, matrix.rows),
      column: clamp((at?.column ?? -right) + right, matrix.columns),
    });
  };
  const value = at ? matrix.values[at.row * matrix.columns + at.column] : NaN;
  return (
    <div className={styles["panel"]}>
      <div className={styles["axis"]} aria-hidden="true">
        <span className={styles["axis-name"]}>{axes.columns}</span>
        {chooseTicks(matrix.columns, width, COLUMN_ROOM_PX).map((at) => (
          <span key={at} style={{ left: `${((at + 0.5) / matrix.columns) * 100}%` }}>
            {axes.column(at)}
          </span>
        ))}
      </div>
      <div className={styles["framed"]}>
        <span className={styles["axis-name"]} aria-hidden="true">
          {axes.rows}
        </span>
        {chooseTicks(matrix.rows, height, ROW_ROOM_PX).map((at) => (
          <span key={at} aria-hidden="true" style={{ top: ((at + 0.5) / matrix.rows) * height }}>
            {axes.row(at)}
          </span>
        ))}
        <div
          className={styles["canvas"]}
          style={{ height }}
          role="application"
          tabIndex={0}
          aria-label={texts.matrixKeys(label)}
          onKeyDown={move}
          onPointerMove={(event) => setAt(find(event))}
          onClick={(event) => {
            const found = find(event);
            if (found) onChoose?.(found.row, found.column);
          }}
        >
          <canvas ref={canvas} />
        </div>
      </div>
      <div className={styles["scale"]}>
        <span>{format(range[0])}</span>
        <i style={{ background: rampOf(theme) }} />
        <span>{format(range[1])}</span>
        <span role="status" className={ui["muted"]}>
          {at && describe(at.row, at.column, value)}
        </span>
      </div>
    </div>
  );
}
