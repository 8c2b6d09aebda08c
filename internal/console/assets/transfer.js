// The views of import and export: buttons, the place to drop a file, progress.

import { html, useEffect, useLayoutEffect, useRef, useState } from './preact.js';
import * as exporting from './export.js';
import * as importing from './import.js';
import { FailureView, sentence } from './messages.js';
import { announce } from './notice.js';
import { counted, marked } from './text.js';
import { formats } from './files.js';
import { isFiltered, list } from './list.js';
import { may } from './session.js';
import { observable, use } from './observable.js';

const exportOpen = observable(false);

export function ImportButton() {
  const file = useRef();
  const choose = () => {
    const [chosen] = file.current.files;
    file.current.value = ''; // so that the same file can be chosen again
    if (chosen) importing.importFile(chosen);
  };
  return html`<button type="button" id="import" class="quiet" title="JSON, NDJSON or CSV; or drop it on the page" onClick=${() => file.current.click()}>Import</button>
    <input type="file" id="import-file" ref=${file} hidden accept=".json,.ndjson,.jsonl,.csv,.txt" aria-label="File to import" onChange=${choose} />`;
}

export function ExportButton() {
  const open = use(exportOpen);
  return html`<button type="button" id="export" class="quiet" aria-expanded=${String(open)} onClick=${() => exportOpen.set(!open)}>Export</button>`;
}

export const offerSamples = importing.importSamples;

// Transfer shows the import and the export in progress, and takes dropped files.
export function Transfer() {
  return html`${may('create') && html`<${DropZone} />`}<${ImportView} /><${ExportView} />`;
}

function DropZone() {
  const [over, setOver] = useState(false);
  useEffect(() => {
    let leaving = 0;
    const hasFile = (event) => event.dataTransfer?.types.includes('Files');
    const onOver = (event) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      clearTimeout(leaving);
      setOver(true);
    };
    const onLeave = () => { leaving = setTimeout(() => setOver(false), 100); };
    const onDrop = (event) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      setOver(false);
      const { files } = event.dataTransfer;
      if (files.length > 1) announce(`Only the first of ${files.length} files is imported. Drop the others one by one.`);
      importing.importFile(files[0]);
    };
    const events = { dragover: onOver, dragleave: onLeave, drop: onDrop };
    for (const [name, listener] of Object.entries(events)) window.addEventListener(name, listener);
    return () => { for (const [name, listener] of Object.entries(events)) window.removeEventListener(name, listener); };
  }, []);
  return over && html`<div class="drop"><p>Drop a JSON, NDJSON or CSV file to import its plants</p></div>`;
}

const titles = { running: 'Importing', done: 'Imported', cancelled: 'Import cancelled', failed: 'Import stopped' };

function ImportView() {
  const job = use(importing.job);
  const top = useRef();
  useLayoutEffect(() => { if (job?.state === 'running') top.current?.scrollIntoView({ block: 'nearest' }); }, [job?.state]);
  if (!job) return null;
  const running = job.state === 'running';
  return html`<section id="import-job" class="job" ref=${top} aria-labelledby="import-title">
    <h2 id="import-title">${titles[job.state]}: <bdi>${marked(job.name)}</bdi></h2>
    <div class="job-line">
      <progress id="import-progress" max="1" value=${job.state === 'done' ? 1 : job.part * 0.999} aria-label="Part of the file that is read" />
      ${running ? html`<button type="button" id="import-cancel" onClick=${job.stop}>Cancel</button>`
    : html`<button type="button" id="import-close" onClick=${() => importing.job.set(null)}>Close</button>`}
    </div>
    ${running && html`<p id="import-rate" class="note">${progressInWords(job)}</p>`}
    <p id="import-summary" role="status">${counted(job.stored, 'plant')} ${job.stored === 1 ? 'is' : 'are'} in the store${job.bad > 0 && `, ${job.bad.toLocaleString('en')} not imported`}.</p>
    ${job.waiting && html`<p class="note" id="import-waiting">Waiting ${job.waiting.retryAfter || 3} s. ${sentence(job.waiting)}</p>`}
    ${job.lines.length > 0 && html`<div class="bad-lines" tabindex="0" role="group" aria-label="Lines that were not imported">
      <table><thead><tr><th scope="col">Line</th><th scope="col">Why it was not imported</th></tr></thead>
        <tbody>${job.lines.map(({ line, why }) => html`<tr><td class="mono">${line}</td><td><bdi>${marked(why)}</bdi></td></tr>`)}</tbody></table>
    </div>`}
    ${job.bad > job.lines.length && html`<p class="note">The first ${job.lines.length.toLocaleString('en')} are listed.</p>`}
  </section>`;
}

// progressInWords is the part that is done, and how long the rest takes at this speed.
function progressInWords({ part, seconds, stored, bad }) {
  const words = [`${Math.floor(100 * part)} %`];
  if (seconds >= 2 && part > 0) {
    const left = seconds * (1 / part - 1);
    words.push(`${Math.round((stored + bad) / seconds).toLocaleString('en')} lines a second`,
      left < 100 ? `about ${Math.ceil(left)} s left` : `about ${Math.round(left / 60)} min left`);
  }
  return words.join(' · ');
}

function ExportView() {
  const open = use(exportOpen);
  const job = use(exporting.job);
  const { plants, ...state } = use(list);
  const which = useRef();
  const format = useRef();
  const link = useRef();
  // The download starts by itself once the file is complete.
  useEffect(() => { if (job?.url) link.current.click(); }, [job?.url]);
  if (!open || !may('read')) return null;
  const close = () => { exporting.discard(); exportOpen.set(false); document.getElementById('export')?.focus(); };
  const submit = (event) => {
    event.preventDefault();
    if (job?.state !== 'running') exporting.exportFile(which.current.value, format.current.value);
  };
  return html`<section id="export-job" class="job" aria-labelledby="export-title">
    <h2 id="export-title">Export</h2>
    <form class="job-line" onSubmit=${submit}>
      <label>Plants <select id="export-which" ref=${which}>
        ${isFiltered(state) && html`<option value="search">found by the search</option>`}
        <option value="all">all</option>
        <option value="page">on this page (${plants.length})</option></select></label>
      <label>Format <select id="export-format" ref=${format}>${Object.keys(formats).map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <button type="submit" class="primary">Download</button>
      ${job?.state === 'running' ? html`<button type="button" id="export-cancel" onClick=${job.stop}>Cancel</button>`
    : html`<button type="button" onClick=${close}>Close</button>`}
    </form>
    <p class="note">In CSV, an empty field is no tag and "" is an empty tag.</p>
    ${job && html`<p id="export-summary" role="status">${exportSummary(job)}${job.url && html`${' '}<a ref=${link} href=${job.url} download=${job.name}>Download again</a>`}</p>`}
    ${job?.waiting && html`<p class="note">Waiting ${job.waiting.retryAfter || 3} s. ${sentence(job.waiting)}</p>`}
    ${job?.state === 'failed' && html`<${FailureView} failure=${job.failure} />`}
  </section>`;
}

function exportSummary({ state, count }) {
  const plants = counted(count, 'plant');
  return { running: `${plants} so far…`, done: `${plants} exported.`, cancelled: 'Cancelled. No file was written.', failed: 'No file was written.' }[state];
}
