"""Shapes of keys and tokens that vendors publish, as data.

Written from the vendors' own documentation of how their keys look; holds no
real key. Nothing here runs; ``pattern_set`` runs it. Every repetition is bounded
or cannot overlap its neighbour, so that time grows with length only.
"""

from curtilage.client.detection.detectors.patterns.rule import (
    ANY_DIGIT,
    PatternRule,
    listed,
)

_KEY = "secret.api_key"
_TOKEN = "secret.token"  # noqa: S105 - a class


def _key(name: str, regex: str, words: str, data_class: str = _KEY) -> PatternRule:
    return PatternRule(
        id=name,
        data_class=data_class,
        regex=rf"(?<!\w)(?:{regex})",
        score=95,
        cased=True,
        words=tuple(words.split()),
    )


CLOUDS = (
    _key(
        "aws-access-key",
        r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{12,20}",
        "akia asia abia acca a3t",
    ),
    _key(
        "aws-bedrock-key",
        r"ABSK[A-Za-z0-9+/]{60,280}={0,2}|bedrock-api-key-[\w+/=\-]{20,400}",
        "absk bedrock-api-key-",
    ),
    _key("alibaba-key", r"LTAI[A-Za-z0-9]{12,24}(?!\w)", "ltai"),
    _key("google-key", r"AIza[\w\-]{30,40}", "aiza"),
    _key(
        "google-oauth",
        r"ya29\.[\w\-]{20,250}|GOCSPX-[\w\-]{20,40}|1//0[\w\-]{30,200}",
        "ya29. gocspx- 1//0",
        _TOKEN,
    ),
    PatternRule(
        id="azure-client-secret",
        data_class=_KEY,
        regex=r"(?<![\w.~-])[\w.~\-]{3}\dQ~[\w.~\-]{31,34}(?![\w.~-])",
        score=95,
        gate="~",
        cased=True,
    ),
    PatternRule(
        id="azure-key",
        data_class=_KEY,
        regex=r"(?:AccountKey|SharedAccessKey|SharedAccessSignature|"
        r"sig)=[\w+/%=\-]{20,200}",
        score=95,
        words=("accountkey=", "sharedaccess", "sig="),
    ),
    _key(
        "digitalocean-token",
        r"do[opr]_v1_[0-9a-f]{64}",
        "doo_v1_ dop_v1_ dor_v1_",
    ),
    _key(
        "yandex-key",
        r"t1\.[A-Z0-9a-z_\-]{10,250}={0,2}\.[\w\-]{80,100}={0,2}|AQVN[\w\-]{35,38}|"
        r"YCA[A-Za-z0-9_\-]{37}(?!\w)|y[0123]_[\w\-]{50,60}",
        "t1. aqvn yca y0_ y1_ y2_ y3_",
    ),
    _key(
        "platform-token",
        r"fo1_\w{30,60}|fm[12][ar]?_[\w+/=]{60,700}|HRKU-[\w\-]{30,80}|"
        r"rnd_\w{28,40}|nfp_\w{30,50}|vercel_\w{20,60}|dnkey-[\w\-]{40,120}|"
        r"tskey-[\w\-]{16,80}|tk-us-[\w\-]{40,60}|sbp_[0-9a-f]{40}|"
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.\w{40,50}|"
        r"dt0[a-z]\d{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}|"
        r"4b1d\w{38}(?!\w)|v1\.0-[0-9a-f]{24}-[0-9a-f]{100,160}|"
        r"[a-z0-9]{14}\.atlasv1\.[\w\-=]{60,70}|hv[sbr]\.[\w\-]{20,300}|"
        r"pul-[0-9a-f]{40}|pnu_\w{36}|dapi[0-9a-f]{32}|CLOJARS_[a-z0-9]{60}|"
        r"sha256~[\w\-]{43}|s-s4t2(?:ud|af)-[0-9a-f]{64}",
        "fo1_ fm1_ fm1a fm1r fm2_ fm2a fm2r hrku- rnd_ nfp_ vercel_ dnkey- tskey- "
        "tk-us- sbp_ dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. dt0 4b1d v1.0- "
        ".atlasv1. "
        "hvs. hvb. hvr. pul- pnu_ dapi clojars_ sha256~ s-s4t2",
        _TOKEN,
    ),
)

CODE_HOSTS = (
    _key(
        "github-token",
        r"gh[pousr]_\w{20,255}|github_pat_\w{20,255}",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
    ),
    _key(
        "gitlab-token",
        r"gl(?:pat|ptt|rt|rtr|dt|ft|soat|cbt|imt|agent|oas|ffct)-[\w\-.]{16,100}|"
        r"GR1348941[\w\-]{20,30}|_gitlab_session=[0-9a-z]{32}",
        "glpat- glptt- glrt- glrtr- gldt- glft- glsoat- glcbt- glimt- glagent- gloas- "
        "glffct- gr1348941 _gitlab_session=",
    ),
    _key(
        "atlassian-token",
        r"ATATT3[\w\-=]{50,250}|ATBB\w{30,60}|ATCTT3[\w\-=]{50,250}",
        "atatt3 atbb atctt3",
        _TOKEN,
    ),
    _key(
        "package-token",
        r"npm_\w{30,50}|pypi-[\w\-]{30,250}|rubygems_\w{40,60}|oy2[a-z0-9]{43}(?!\w)",
        "npm_ pypi- rubygems_ oy2",
        _TOKEN,
    ),
    _key(
        "hub-token",
        r"hf_\w{20,60}|api_org_\w{30,50}|r8_\w{30,50}|dckr_(?:pat|oat)_[\w\-]{20,40}",
        "hf_ api_org_ r8_ dckr_",
        _TOKEN,
    ),
    _key(
        "build-token",
        r"CCIPAT_\w{20,80}|bkua_[0-9a-f]{30,50}|AKCp\w{60,80}|cmVmd\w{55,70}(?!\w)|"
        r"API-[A-Z0-9]{26}(?!\w)|sq[pua]_[0-9a-f]{40}|sgp_(?:[0-9a-f]{16}_|"
        r"local_)?[0-9a-f]{40}|"
        r"ico-\w{32}|[ps]at\.[\w\-]{22}\.[0-9a-f]{24}\.\w{20}",
        "ccipat_ bkua_ akcp cmvmd api- sqp_ squ_ sqa_ sgp_ ico- pat. sat.",
        _TOKEN,
    ),
)

SERVICES = (
    _key(
        "slack-token",
        r"xox[abeoprs](?:\.xox[bp])?-[\w\-]{10,250}|xapp-\d-[\w\-]{10,150}",
        "xoxa xoxb xoxe xoxo xoxp xoxr xoxs xapp-",
    ),
    _key(
        "web-hook",
        r"(?:https?://)?hooks\.slack\.com/(?:services|workflows)/[\w/]{10,100}|"
        r"[\w\-]{1,60}\.webhook\.office\.com/webhookb2/[\w\-@/]{40,250}|"
        r"discord(?:app)?\.com/api/webhooks/\d{15,22}/[\w\-]{50,90}",
        "hooks.slack.com/ webhook.office.com/ /api/webhooks/",
    ),
    _key(
        "stripe-key",
        r"[srp]k_(?:live|test|prod)_\w{10,250}|whsec_[\w+/=]{20,80}|"
        r"sk_[\w\-*;:&=]{29}(?!\w)",
        "sk_ rk_ pk_ whsec_",
    ),
    _key(
        "payment-key",
        r"sq0[a-z]{3}-[\w\-]{20,50}|EAAA[\w\-]{50,70}|FLW(?:PUBK|"
        r"SECK)_TEST-[\w\-]{12,50}|"
        r"rzp_(?:live|test)_\w{10,30}|access_token\$(?:production|"
        r"sandbox)\$[\w$]{20,80}|"
        r"(?:live|test)_(?:pub_)?[\w\-]{31,45}(?!\w)|EZ[AT]K\w{50,60}|"
        r"shippo_(?:live|test)_[0-9a-f]{40}|duffel_(?:live|test)_[\w\-=]{40,50}|"
        r"fio-u-[\w\-=]{60,70}",
        "sq0 eaaa flwpubk flwseck rzp_ access_token$ live_ test_ ezak eztk shippo_ "
        "duffel_ fio-u-",
    ),
    _key(
        "openai-key",
        r"sk-(?:proj-|ant-|svcacct-|admin-|or-|None-)?[\w\-]{16,250}",
        "sk-",
    ),
    _key(
        "model-key",
        r"pplx-\w{30,60}|gsk_\w{40,60}|xai-\w{60,90}|AQ\.[\w\-]{40,60}|"
        r"co-[\w]{38,42}(?!\w)",
        "pplx- gsk_ xai- aq. co-",
    ),
    _key("sendgrid-key", r"SG\.[\w\-]{16,30}\.[\w\-]{20,60}", "sg."),
    PatternRule(
        id="twilio-key",
        data_class=_KEY,
        regex=r"[AS](?<!\w[AS])[CK][0-9a-f]{32}(?!\w)",
        score=95,
        mixed=True,
        cased=True,
    ),
    _key(
        "mail-key",
        r"key-[0-9a-f]{32}|pubkey-[0-9a-f]{32}|xkeysib-[0-9a-f]{64}-\w{16}|"
        r"xsmtpsib-[0-9a-f]{64}-\w{16}|[0-9a-f]{32}-us\d{1,2}(?!\w)|re_\w{20,40}(?!\w)",
        "key- xkeysib- xsmtpsib- -us re_",
    ),
    _key(
        "observability-key",
        r"NR(?:AK|II|IQ|JS|BR|RA|AA|SP)-?[\w\-]{20,50}|gl(?:sa|c)_[\w+/=]{30,400}|"
        r"eyJrIjoi[\w+/=\-]{40,400}|sntry[su]_[\w+/=\-]{20,300}|"
        r"PMAK-[\w\-]{30,80}|rdme_[a-z0-9]{60,80}|phc_\w{40,60}|(?:sdk|mob|"
        r"api)-[0-9a-f]{8}"
        r"-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "nrak nrii nriq nrjs nrbr nrra nraa nrsp glsa_ glc_ eyjrijoi sntrys_ sntryu_ "
        "pmak- rdme_ phc_ sdk- mob- api-",
    ),
    _key(
        "workspace-key",
        r"lin_(?:api|oauth)_\w{30,64}|ntn_\w{30,60}|secret_\w{30,60}|"
        r"pat(?!h)\w{14}\.[0-9a-f]{64}|pat-(?:na|eu)\d-[\w\-]{30,50}|"
        r"figd_[\w\-]{30,60}|tfp_[\w\-.=]{50,70}|CFPAT-[\w\-]{30,60}|"
        r"pscale_(?:tkn|oauth|pw)_[\w\-.=]{30,64}|"
        r"shp(?:at|ss|ca|pa)_[0-9a-fA-F]{32}|sm_(?:pat|aat|sat)_\w{16}|"
        r"ops_eyJ[\w+/=\-]{60,900}|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|"
        r"[A-Z0-9]{6}-[A-Z0-9]{5})"
        r"(?:-[A-Z0-9]{5}){3}|\w{6}_\w{29}_mmk|sl\.[\w\-]{60,200}|"
        r"[ps]k\.eyJ[\w\-]{40,120}\.[\w\-]{15,30}|EAA[A-Za-z0-9]{30,250}|"
        r"p8e-[\w]{32}(?!\w)|(?:sc|ext|scauth|authress)_\w{5,30}\.\w{4,6}\."
        r"acc[_\-]\w{10,32}\.[\w+/=\-]{30,120}",
        "lin_ ntn_ secret_ pat figd_ tfp_ cfpat- pscale_ shpat_ shpss_ shpca_ shppa_ "
        "sm_pat_ sm_aat_ sm_sat_ ops_eyj a3- _mmk sl. pk.eyj sk.eyj eaa p8e- .acc_ "
        ".acc-",
    ),
    _key(
        "json-web-token",
        r"eyJ[\w\-]{8,2000}\.[\w\-]{4,4000}(?:\.[\w\-]{0,2000})?|ZXlK[\w+/=]{40,4000}",
        "eyj zxlk",
        _TOKEN,
    ),
    PatternRule(
        id="telegram-token",
        data_class=_TOKEN,
        regex=r"\d(?<!\w\d)\d{7,9}:[\w\-]{33,37}(?![\w\-])",
        score=95,
        gate=":",
        digits=8,
    ),
    PatternRule(
        id="discord-token",
        data_class=_TOKEN,
        regex=r"[MNO](?<!\w[MNO])[\w\-]{22,28}\.[\w\-]{6}\.[\w\-]{27,40}(?![\w\-])",
        score=95,
        gate=".",
        cased=True,
    ),
)

# Vendors whose keys have no shape of their own: the name stands before the
# value. Those that are common words are left to ``key-assigned``.
_VENDORS = listed("""
adafruit adobe airtable algolia aliyun alibaba anthropic artifactory asana atlassian
authress beamer bitbucket bittrex meraki clickhouse clojars cloudflare codecov cohere
coinbase confluent contentful databricks datadog digitalocean discord doppler droneci
dropbox duffel dynatrace easypost etsy facebook fastly finicity finnhub flickr
flutterwave frameio freemius freshbooks github gitlab gitter gocardless grafana
harness hashicorp heroku hubspot huggingface infracost intercom jfrog kraken kucoin
launchdarkly linkedin looker mailchimp mailgun mapbox mattermost maxmind messagebird
netlify newrelic new_relic notion nytimes okta openai perplexity plaid planetscale
postman privateai pulumi rapidapi rubygems scalingo sendbird sendgrid sendinblue
sentry settlemint shippo shopify sidekiq snyk sonar sourcegraph squarespace stripe
sumologic sumo_logic telegram travis twilio twitch twitter typeform yandex zendesk
""")
ASSIGNED = tuple(
    PatternRule(
        id=f"{vendor.replace('_', '-')}-named-key",
        data_class=_KEY,
        regex=rf"{vendor}[\w .\-]{{0,24}}[\"']?\s{{0,3}}"
        r"(?:[:=]|=>|:=|\bis\b)\s{0,3}[\"'`]?"
        r"(?=[\w+/=.\-]{0,40}\d)(?=[\w+/=.\-]{0,40}[a-z])([\w+/=\-]{16,400})(?![\w./])",
        score=85,
        group=1,
        gate=ANY_DIGIT,
        words=(vendor,),
    )
    for vendor in _VENDORS
)

VENDOR_KEYS = (*CLOUDS, *CODE_HOSTS, *SERVICES, *ASSIGNED)
