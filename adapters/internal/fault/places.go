package fault

import "strings"

// A kind of place says what a member of an error object is.
type placeKind int

const (
	isNothing  placeKind = iota // not looked at: echoes of the request, what a model wrote, ids of other things
	isText                      // words for people
	isWord                      // a code, a type, a status
	isWrapping                  // the error is inside, or it is a text
	isObject                    // the error may be inside, if it is an object
	isID                        // the provider's id of the request
	isWait                      // how long to wait
	isHeaders                   // the headers of an upstream
)

// place says what a member of an error is, by its name.
func place(name string) placeKind {
	if len(name) > 64 {
		return isNothing
	}
	switch strings.ToLower(joiners(name)) {
	case "message", "msg", "errormsg", "errormessage", "statusmsg", "errordescription", "title", "statusmessage",
		"detail", "err", "finishmessage":
		return isText
	case "code", "type", "status", "errortype", "errorcode", "errcode", "statuscode", "httpcode", "httpstatus", "reason",
		"reasoncode", "name", "kind":
		return isWord
	case "error", "errors", "innererror", "cause", "metadata", "raw", "baseresp", "body", "details",
		"providerspecificfields", "fault", "upstreamerror", "originalerror", "lasterror", "incompletedetails",
		"exception", "responsebody":
		return isWrapping
	case "response", "data", "param", "result":
		return isObject
	case "requestid", "xrequestid", "traceid", "logid":
		return isID
	case "retryafter", "retryafterms", "retryafterseconds", "retrydelay", "resetsinseconds", "resetinseconds",
		"resetafter", "resetafterseconds", "waitseconds", "resetsat", "retryinseconds":
		return isWait
	case "headers":
		return isHeaders
	}
	return isNothing
}

// joiners takes out what joins the words of a name.
func joiners(name string) string {
	return strings.Map(func(c rune) rune {
		if c == '_' || c == '-' || c == ' ' {
			return -1
		}
		return c
	}, name)
}
