/** Builds the paths of API calls and the addresses of pages. Each name is escaped, whatever it contains. */

import { path, withQuery } from "../../dom.js";

export const subjectPath = (subject) => path`subjects/${subject}`;
export const queuePath = (subject, queue) => path`subjects/${subject}/queues/${queue}`;
export const groupPath = (subject, group) => path`subjects/${subject}/groups/${group}`;

export const subjectLink = (subject) => path`#/subjects/${subject}`;
export const groupLink = (subject, group) => path`#/subjects/${subject}/groups/${group}`;
export const deadLink = (subject, group) => path`#/subjects/${subject}/groups/${group}/dead`;
export const traceLink = (subject, id) => withQuery(path`#/subjects/${subject}/trace`, { id });
export const delayedLink = (subject) => withQuery("#/delayed", { subject });
export const browseLink = (subject, query) => withQuery(path`#/subjects/${subject}/browse`, query);
