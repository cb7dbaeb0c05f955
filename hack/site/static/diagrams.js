// SPDX-License-Identifier: Apache-2.0

// Draws the diagrams of a page with Mermaid, which only pages with diagrams load. Where it is missing, their text stays.
const directory = new URL(".", document.currentScript.src);

document.addEventListener("DOMContentLoaded", async () => {
  const diagrams = document.querySelectorAll(".diagram");
  if (diagrams.length === 0) {
    return;
  }
  const script = document.createElement("script");
  script.src = new URL("mermaid.min.js", directory);
  document.head.append(script);
  await new Promise((loaded) => (script.onload = loaded));
  mermaid.initialize({ startOnLoad: false, theme: "neutral" });
  for (const [number, diagram] of diagrams.entries()) {
    const { svg } = await mermaid.render(`diagram-${number}`, diagram.textContent.trim());
    diagram.innerHTML = svg;
  }
});
