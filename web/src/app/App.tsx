/** The whole app. */
export function App() {
  return <main>Marey</main>;
}
