// Puts the newer parts of a page in the place of the older ones while somebody looks at it.
// Without JavaScript a page shows the same and is loaded again by hand.
"use strict";

const EVERY_MS = 5000;
const button = document.getElementById("live");

function isOn() {
  return button !== null && button.getAttribute("aria-pressed") === "true";
}

// What is open, scrolled to, or has the focus stays so.
function replace(old, fresh) {
  const open = [...old.querySelectorAll("details")].map((each) => each.open);
  const left = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  const at = [...old.querySelectorAll("a, button, summary, .scroll")].indexOf(document.activeElement);
  if (open.length === fresh.querySelectorAll("details").length) {
    fresh.querySelectorAll("details").forEach((each, place) => { each.open = open[place]; });
  }
  old.replaceWith(fresh);
  fresh.querySelectorAll(".scroll").forEach((each, place) => { each.scrollLeft = left[place] || 0; });
  if (at >= 0) {
    const again = fresh.querySelectorAll("a, button, summary, .scroll")[at];
    if (again) again.focus({ preventScroll: true });
  }
}

async function look() {
  if (!isOn() || document.hidden || String(getSelection()) !== "") return;
  const told = await fetch("/snapshot");
  if (!told.ok) return;
  const { number } = await told.json();
  if (String(number) === document.body.dataset.snapshot) return;
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const old of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(old.id);
    if (fresh) replace(old, fresh);
  }
  document.body.dataset.snapshot = page.body.dataset.snapshot;
}

if (button && document.querySelector("main [data-live]")) {
  button.hidden = false;
  button.addEventListener("click", () => button.setAttribute("aria-pressed", String(!isOn())));
  setInterval(() => look().catch(() => {}), EVERY_MS);
}
