// What the kit for AssemblyScript makes of the provider's settings: for the tests.
import { onRecover, standard } from "./sdk/index";

export function recover(): i32 { return onRecover(standard); }
