/** A file that is chosen or dropped: upload, translation, link. */

import { Refusal, persist, send } from "./requests.js";

const at = (id) => document.getElementById(id);
let current = new AbortController(); // of the file that is under way

/** Offer to translate files of these formats (".txt", …). `languages` returns {source, target}; `locked` is called when a key is needed. */
export function offerFiles(formats, languages, locked) {
  const choose = at("choose"), input = at("file"), zone = at("drop");
  choose.hidden = false;
  choose.title = `Translate a file (${formats.join(", ")}); or drop it here`;
  input.accept = formats.join(",");
  const begin = (file) => translateFile(file, formats, languages(), locked);
  choose.onclick = () => input.click();
  input.onchange = () => { if (input.files[0]) begin(input.files[0]); input.value = ""; };
  at("dismiss").onclick = () => { current.abort(); at("document").hidden = true; choose.focus(); };
  addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    zone.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) zone.classList.remove("dropping"); });
  addEventListener("drop", (event) => {
    zone.classList.remove("dropping");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    begin(event.dataTransfer.files[0]);
  });
}

async function translateFile(file, formats, { source, target }, locked) {
  current.abort();
  const { signal } = (current = new AbortController());
  at("document").hidden = false;
  at("document-name").textContent = file.name;
  at("document").scrollIntoView({ block: "nearest" });
  if (!formats.some((ending) => file.name.toLowerCase().endsWith(ending))) return say(`Files of this kind are not translated; choose one of: ${formats.join(", ")}.`, { bad: true });
  const progress = (share) => say(share < 1 ? `Uploading: ${Math.floor(100 * share)} %` : "Translating…", { share });
  const report = (refusal, seconds) => say(seconds === null ? refusal.words : `${refusal.words} Trying again in ${seconds} s.`, { bad: true, share: seconds === null ? 2 : 1 });
  try {
    progress(0);
    const { translatedFileUrl } = await persist(() => send("translate_file", signal, { file, source, target }, progress), signal, report);
    say("Translated.");
    at("download").href = translatedFileUrl;
    at("download").hidden = false;
    at("document").scrollIntoView({ block: "nearest" });
  } catch (error) {
    if (error instanceof Refusal && error.status === 403) locked();
    else if (!signal.aborted && !(error instanceof Refusal)) throw error;
  }
}

/** Show where the file is: the share uploaded, 1 while it is translated; none once it is done or refused. */
function say(text, { bad = false, share = 2 } = {}) {
  const progress = at("progress"), ended = share > 1;
  at("document-status").textContent = text;
  at("document-status").classList.toggle("bad", bad);
  progress.hidden = ended;
  if (share < 1) progress.value = share;
  else progress.removeAttribute("value"); // a bar that only moves
  at("download").hidden = true;
  at("dismiss").textContent = ended ? "Close" : "Cancel";
}
