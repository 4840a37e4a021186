// Photos chosen, dropped or taken with the camera, inside one HTML component (`element`, with `upload`
// and `trigger` from Gradio): sent a few at a time, each batch announced as { files: [{ path, name }],
// into, sending }: the class that was shown when the photos were taken, and which sending it is.
const find = (selector) => element.querySelector(selector);
const AT_ONCE = 6;
let waiting = []; // { file, into }
let done = 0;
let sending = false;
let sendings = 0;
let stream = null;

const say = (text) => {
  const place = find(".sent");
  if (place) place.textContent = text;
};
const send = async () => {
  if (sending) return;
  sending = true;
  sendings++;
  while (waiting.length) {
    const { into } = waiting[0];
    const others = waiting.findIndex((one) => one.into !== into);
    const batch = waiting.splice(0, Math.min(AT_ONCE, others < 0 ? AT_ONCE : others));
    const total = done + batch.length + waiting.length;
    if (total > 1) say(`Sending ${done + 1} to ${done + batch.length} of ${total} photos …`);
    const sent = await Promise.all(
      batch.map(async ({ file }) => {
        try {
          return { path: (await upload(file)).path, name: file.name };
        } catch {
          return null;
        }
      }),
    );
    const files = sent.filter((file) => file?.path);
    if (files.length) trigger("submit", { files, into, sending: sendings });
    if (files.length < batch.length) {
      waiting = [];
      done = 0;
      sending = false;
      return say("The photos could not be sent; check the network and try again.");
    }
    done += batch.length;
  }
  done = 0;
  sending = false;
  say("");
};
const take = (files) => {
  const fits = [...files].filter((file) => file.size <= LARGEST * 1024 * 1024);
  const shown = document.querySelector('#collect-classes [data-do="class"][aria-pressed="true"]');
  waiting.push(...fits.map((file) => ({ file, into: shown?.dataset.which ?? "" })));
  const large = files.length - fits.length;
  send().then(() => {
    if (large) say(`${large === 1 ? "One photo is" : `${large} photos are`} larger than LARGEST MB; make them smaller.`);
  });
};

const closeCamera = () => {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  find(".camera").hidden = true;
  find(".open").disabled = false;
};
const openCamera = async () => {
  find(".open").disabled = true;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch {
    find(".open").disabled = false;
    return say("There is no camera that the page may use; choose photos instead.");
  }
  say("");
  const video = find("video");
  video.srcObject = stream;
  find(".camera").hidden = false;
  await video.play();
};
const snap = () => {
  const video = find("video");
  if (!video.videoWidth) return;
  const canvas = document.createElement("canvas");
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  canvas.getContext("2d").drawImage(video, 0, 0);
  video.animate([{ opacity: 0.3 }, { opacity: 1 }], 250);
  canvas.toBlob((photo) => take([new File([photo], "camera.jpg", { type: "image/jpeg" })]), "image/jpeg", 0.92);
};

element.addEventListener("click", ({ target }) => {
  if (target.closest(".choose")) find("input").click();
  else if (target.closest(".open")) openCamera();
  else if (target.closest(".snap")) snap();
  else if (target.closest(".close")) closeCamera();
});
element.addEventListener("change", ({ target }) => {
  if (target.type !== "file") return;
  take([...target.files]);
  target.value = "";
});
const over = (on) => (event) => {
  event.preventDefault();
  find(".drop")?.classList.toggle("over", on);
};
element.addEventListener("dragover", over(true));
element.addEventListener("dragleave", over(false));
element.addEventListener("drop", (event) => {
  over(false)(event);
  take([...(event.dataTransfer?.files ?? [])]);
});
